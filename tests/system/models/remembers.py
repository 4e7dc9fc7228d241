"""Answers differently each time it is asked, unless somebody makes it forget."""

import random

import numpy

asked = 0
seen = []


class Model:
    def act(self, observation):
        global asked
        asked += 1
        seen.append(float(observation[0]))
        noise = random.random() + float(numpy.random.random())
        return [(asked % 7) / 10 + len(seen) / 1000 + noise / 10, 0.0]
