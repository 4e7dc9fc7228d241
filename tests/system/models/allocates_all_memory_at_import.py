"""Allocates memory without end during the import."""

blocks = []
while True:
    blocks.append(bytes(1 << 28))


class Model:
    def act(self, observation):
        return observation
