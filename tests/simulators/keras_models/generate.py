"""Write the HDF5 file of this folder with Keras 2, and what Keras 2 computes with it, for tests that need only Keras 3.

    uv run --no-project --python 3.11 --with tensorflow-cpu==2.21.0 --with tf-keras==2.21.0 \\
        python tests/simulators/keras_models/generate.py
"""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

FOLDER = Path(__file__).parent


def main() -> None:
    """Write an LSTM of CartPole's size and its answers to five equal observations, without a reset in between."""
    tf.random.set_seed(1)
    inputs = tf_keras.layers.Input(batch_shape=(1, 4))
    sequence = tf_keras.layers.Reshape((1, 4))(inputs)
    outputs = tf_keras.layers.LSTM(4, stateful=True)(sequence)
    model = tf_keras.Model(inputs, outputs)
    model.save(FOLDER / "keras2_lstm.h5")
    observation = np.linspace(-1.0, 1.0, 4, dtype=np.float32).reshape(1, 4)
    answers = [model(observation, training=False).numpy()[0].tolist() for _ in range(5)]
    (FOLDER / "keras2_lstm.json").write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
