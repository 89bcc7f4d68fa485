"""``python -m pyro_sparse`` is ``pyro-sparse``, for launchers such as torchrun that start a module."""

from .cli import main

if __name__ == "__main__":
    main()
