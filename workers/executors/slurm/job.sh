#!/bin/sh
# Batch script of a task of the job array, which is one runner. Commands that a site needs go into the option "prolog".
task=$${SLURM_ARRAY_TASK_ID:-0}
# A submission whose response was lost is repeated: the first job that creates the folder does the work, the other exits.
# Slurm starts the same job twice if its controller died before it saved the start: it ended the first, this continues.
mkdir "task.$$task" 2>/dev/null && echo "$$SLURM_ARRAY_JOB_ID" > "task.$$task/job"
[ "$$(cat "task.$$task/job")" = "$$SLURM_ARRAY_JOB_ID" ] || exit 0
[ ! -e "task.$$task/exit" ] || exit "$$(cat "task.$$task/exit")"
sed "s/%TASK%/$$task/g" launch.json > "task.$$task/launch.json" || exit 76
$prolog
PYTHONPATH=$source $python -m $program --launch "$$PWD/task.$$task/launch.json"$start
code=$$?
echo "$$code" > "task.$$task/.exit" && mv "task.$$task/.exit" "task.$$task/exit"
exit "$$code"
