"""The names of algorithms that a program declares itself."""


class AlgorithmName(str):
    """``@mine`` behind ``using``, with its declaration; two are equal if their declarations are.

    Attributes:
        collective: the collective that it is an algorithm of.
        text: the declaration, as it is written.
    """

    __slots__ = ("collective", "text")

    collective: str
    text: str

    def __new__(cls, symbol: str, collective: str, text: str) -> "AlgorithmName":
        name = super().__new__(cls, symbol)
        name.collective, name.text = collective, text
        return name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AlgorithmName):
            return False
        return (str(self), self.collective, self.text) == (
            str(other), other.collective, other.text
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((str(self), self.text))
