"""Path parameters in the OpenAPI document: what each stands for, with an example, by the first part of its path."""

from collections.abc import Mapping
from typing import Any

#: Id in examples: a client gets ids from the platform.
EXAMPLE_ID = "01jz8w0k5qv3r1m9c2t7x4b6ne"
#: Description and example, by the first part of a path after `/v1`, and the name of the parameter.
PARAMETERS: Mapping[tuple[str, str], tuple[str, str | int]] = {
    ("simulations", "id"): ("Id of the simulation, as in the answer to its submission.", EXAMPLE_ID),
    ("simulations", "reader"): ("Name of the project that may read it.", "team-b"),
    ("simulations", "task"): ("Number of the task, from 0; -1 for the simulation as a whole.", 0),
    ("simulations", "connection"): ("Id of the connection, as in the answer to its request.", EXAMPLE_ID),
    ("simulations", "name"): ("Name of the artifact, which may contain folders.", "trace.f32.zz"),
    ("simulations", "picture"): ("Name of the artifact that is a picture, which may contain folders.", "flow.svg"),
    ("comparisons", "id"): ("Id of the comparison, as in the answer to its request.", EXAMPLE_ID),
    ("pipelines", "id"): ("Id of the pipeline, as in the answer to its request.", EXAMPLE_ID),
    ("webhooks", "id"): ("Id of the webhook, as in the answer to its request.", EXAMPLE_ID),
    ("webhooks", "delivery"): ("Id of the delivery, as in the list of deliveries.", EXAMPLE_ID),
    ("imports", "id"): ("Id of the import, as in the answer to its request.", EXAMPLE_ID),
    ("models", "model"): (
        "Name of the model (its newest version), `name@version`, `name@tag`, `name@digest`, id or digest; before what"
        " another project shares, that project and a slash.",
        "policy",
    ),
    ("models", "name"): ("Name of the model.", "policy"),
    ("models", "reader"): ("Name of the project that may read it.", "team-b"),
    ("models", "tag"): ("Name of the tag.", "gold"),
    ("runtimes", "name"): ("Name of the runtime.", "python"),
    ("executors", "name"): ("Name of the executor.", "local"),
    ("datasets", "dataset"): (
        "Name of the dataset (its latest version), `name@version`, `name@tag`, id or digest; before what another"
        " project shares, that project and a slash.",
        "drives",
    ),
    ("datasets", "name"): ("Name of the dataset.", "drives"),
    ("datasets", "reader"): ("Name of the project that may read it.", "team-b"),
    ("datasets", "tag"): ("Name of the tag.", "gold"),
    ("datasets", "index"): ("Number of the scenario in the dataset, from 0.", 0),
    ("datasets", "file"): ("Path of the file in the dataset, which may contain folders.", "dataset.json"),
    ("uploads", "upload"): ("Id of the upload: the last part of its address.", EXAMPLE_ID),
    ("projects", "project"): ("Name of the project.", "team-a"),
    ("projects", "user"): ("Name of the user.", "ada"),
    ("projects", "token"): ("Id of the token, as in the list of tokens.", EXAMPLE_ID),
    ("bin", "id"): ("Id of what is in the bin, as in its list.", EXAMPLE_ID),
    ("users", "user"): ("Name of the user.", "ada"),
    ("users", "token"): ("Id of the token or the session, as in the list of tokens.", EXAMPLE_ID),
    ("users", "passkey"): ("Id of the passkey, as in the list of ways to sign in.", "dGhlIHBhc3NrZXk"),
    ("users", "provider"): ("Name of the identity provider.", "company"),
    ("sign-in", "provider"): ("Name of the identity provider.", "company"),
    ("sign-in", "code"): ("The code that the program shows.", "BCDF-GHJK"),
    ("problems", "slug"): ("Name of the problem type: the last part of its address.", "unknown-dataset"),
}


def describe_path_parameters(paths: Mapping[str, Any]) -> None:
    """Give each path parameter its description and its example; raise KeyError for one that PARAMETERS lacks."""
    for path, operations in paths.items():
        first = path.removeprefix("/v1").split("/")[1]
        for parameter in operations.get("parameters", ()):
            if parameter["in"] == "path":
                description, example = PARAMETERS[first, parameter["name"]]
                parameter["description"] = description
                parameter["example"] = example
