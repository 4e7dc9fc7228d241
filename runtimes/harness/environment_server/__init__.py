"""Environment server: the processes of an OpenEnv environment beside the evaluator; they have its packages alone."""
