"""Program of a model: answers lines of JSON with the `Model` of model.py beside it."""

import json
import sys

from model import Model

model = Model()
for line in sys.stdin:
    request = json.loads(line)
    answer = {}
    try:
        if "act" in request:
            answer = {"action": [float(number) for number in model.act(request["act"])]}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
