"""Drives a model file from submission to results with the Python client that openapi-generator writes.

Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
"""

import json
import sys
import time

import windtunnel_client as windtunnel

url, model = sys.argv[1:]
with windtunnel.ApiClient(windtunnel.Configuration(host=url)) as connection:
    submissions = windtunnel.SubmissionsApi(connection)
    simulations = windtunnel.SimulationsApi(connection)
    results = windtunnel.ResultsApi(connection)
    with open(model, "rb") as file:
        content = ("half.py", file.read())

    check = submissions.check_form(dataset="noop", model=content)
    started = time.monotonic()
    created = submissions.submit_form(
        dataset="noop", model=content, scenarios='{"tasks": [3, 5]}', repeat=2, prefer="wait=120"
    )
    lines = results.get_simulation_results(created.id).decode().splitlines()
    rows = [windtunnel.Result.from_json(line) for line in lines]
    seconds = time.monotonic() - started
    table = results.get_simulation_results(created.id, format="csv").decode()
    summary = simulations.get_simulation_summary(created.id)
    events = results.watch_simulation_events(created.id)
    archive = windtunnel.ArtifactsApi(connection).get_simulation_archive(created.id)

    scenarios = windtunnel.ScenarioSelection(windtunnel.Scenarios(range=[0, 3]))
    submission = windtunnel.Submission(dataset="noop", model=created.model.name, scenarios=scenarios)
    again = simulations.create_simulation(submission, prefer="wait=120")
    checked = submissions.check_submission(submission)
    try:
        simulations.create_simulation(windtunnel.Submission(dataset="nop", model=created.model.name))
        problem = None
    except windtunnel.ApiException as error:
        problem = error.data
    print(
        json.dumps(
            {
                "fits": [check.fits, checked.fits],
                "id": created.id,
                "seconds": seconds,
                "state": created.state,
                "statuses": [row.status for row in rows],
                "csv_lines": len(table.splitlines()),
                "summary": summary.tasks,
                "events": events.decode().count("event: state"),
                "archive": archive[:2].decode(),
                "again": [again.id, again.state, again.tasks.done],
                "problem": [problem.status, problem.type],
            }
        )
    )
