"""Who runs the workers: this process, threads, other processes, an executor, the ranks of MPI."""
