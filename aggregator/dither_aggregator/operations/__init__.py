"""The work behind uploads and pages: operators' changes, maintenance, loading and computing, signals and logs."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The environment of all commands. BLAS spins on threads of its own for longer than a page takes."""
