"""Where trainings run: in this process, on threads or processes, in lockstep on one GPU, on a cluster."""
