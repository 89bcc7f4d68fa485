"""How are tasks fitted? Latents in the outer problem, each task's sparse regression in the inner one."""

__all__: list[str] = []
