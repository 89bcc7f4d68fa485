"""What every room may use and none is about: arrays, files, checks, threads and devices."""

__all__: list[str] = []
