"""Settings of the whole run: several CPU devices, and no silent rank promotion."""

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)  # most of the tests' time is compilation

# Doctests would import all files of this name as one module.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]
