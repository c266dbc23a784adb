"""The passes, one per file, named as the pass. Import them as ``collir.passes``."""

if __name__ == "passes":
    raise ImportError("import collir.passes, not passes: the folder is linked into the package")
