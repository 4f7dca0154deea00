"""Which labels are right: NCV, INCV, and what the noise is. It asks for trainings and never trains."""
