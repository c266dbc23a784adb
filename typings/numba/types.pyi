class Type:
    def __call__(self, *args: Type) -> object: ...

int64: Type
uint64: Type
