from matplotlib.artist import Artist

class Patch(Artist):
    def __init__(self, **settings: object) -> None: ...
