"""Code targets: one file per runtime, over a shared plan of buffers."""
