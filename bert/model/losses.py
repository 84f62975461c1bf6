"""Cross-entropies as float32 sums: the step divides them by the weights of the whole batch, over all micro-batches."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert.hardware import graphs
from bert.hardware.devices import has_gpu
from bert.model.model_shard import Parts


class Measure(NamedTuple):
    """Sums over a micro-batch, for one objective."""

    loss: tf.Tensor  # weighted
    correct: tf.Tensor  # weighted number of correct predictions; of equal scores the first is the prediction


class Distance(NamedTuple):
    """The sum of an objective that predicts nothing: it compares the outputs of two models."""

    loss: tf.Tensor  # weighted


class Detection(NamedTuple):
    """The sums of an objective with labels 0 and 1, where 1 is rare."""

    loss: tf.Tensor  # weighted
    correct: tf.Tensor  # weighted number of correct predictions
    positive: tf.Tensor  # weighted number of labels that are 1
    predicted: tf.Tensor  # and of predictions that are 1
    found: tf.Tensor  # and of those that are right


def classification(products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Measure:
    """Return the cross-entropy of the logits `products` + `bias` with the labels.

    products: [..., C] of any type. bias: [C]. labels, weights: [...]. XLA always compiles this function: where C is the
    vocabulary, the logits are the largest tensor of the step, and TensorFlow's own kernels would read them many more
    times.
    """
    return _classification(products, bias, labels, weights, shape=tuple(products.shape))


@graphs.function(jit_compile=True)
def _classification(
    products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, shape: tuple[int | None, ...]
) -> Measure:
    """Compute `classification` for products of this static shape.

    The argument `shape` makes TensorFlow trace the function once for each shape. Otherwise TensorFlow would use an
    earlier trace with unknown dimensions also for known ones, and XLA cannot compile its gradient inside a loop.
    """
    scores = tf.reshape(tf.cast(products, tf.float32) + bias, [-1, tf.size(bias)])  # [M, C]
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])
    highest = tf.stop_gradient(tf.reduce_max(scores, axis=-1))
    total = tf.math.log(tf.reduce_sum(tf.exp(scores - highest[:, None]), axis=-1)) + highest
    label_scores = _label_scores(scores, labels)
    correct = tf.cast(_first_highest(scores, highest) == labels, tf.float32)
    return Measure(tf.reduce_sum((total - label_scores) * weights), tf.reduce_sum(correct * weights))


def _first_highest(scores: tf.Tensor, highest: tf.Tensor) -> tf.Tensor:
    """Return the place of each row's first highest score [M]. scores: [M, C]. highest: their maxima [M].

    tf.argmax returns the same, but XLA compiles it to a loop over single numbers, several times slower on a CPU.
    """
    classes = tf.shape(scores)[1]
    return tf.reduce_min(tf.where(scores == highest[:, None], tf.range(classes), classes), axis=1)


def _label_scores(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return the score of each row's label [M], from scores [M, C] and labels [M]."""
    if not has_gpu():
        return tf.gather_nd(scores, tf.stack([tf.range(tf.size(labels)), labels], axis=1))
    # The gradient of a gather is a scatter into a float32 tensor as large as the scores; this one is a comparison.
    is_label = tf.range(tf.shape(scores)[1]) == labels[:, None]
    return tf.reduce_sum(tf.where(is_label, scores, 0.0), axis=1)


def divided_classification(
    products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, parts: Parts
) -> Measure:
    """Compute `classification` where each part of the model has the logits of some classes (Shoeybi et al. 2019).

    products: [..., C] for this part's C classes. bias: [C]. labels: [...], places among this part's classes, or -1 for
    a class of another part. C may differ between the parts.
    """
    classes = products.shape[-1]
    products = tf.reshape(products, [-1, classes])  # [M, C]
    labels, weights = tf.reshape(labels, [-1]), tf.reshape(weights, [-1])

    @tf.custom_gradient
    def differentiable(
        products: tf.Tensor, bias: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., list[tf.Tensor]]]:
        own = part_statistics(products, bias, labels)
        loss, correct, total = combine(parts.gather(own, "vocabulary/statistics"), weights)

        def gradients(by_loss: tf.Tensor, _: tf.Tensor) -> list[tf.Tensor]:
            return part_gradients(products, bias, labels, weights * by_loss, total)

        return (loss, correct), gradients

    return Measure(*differentiable(products, tf.convert_to_tensor(bias)))


@graphs.function(jit_compile=True)
def part_statistics(products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Return four statistics of each row [4, M], over this part's classes.

    They are: the largest score; the sum of exp(score - largest); the score of the label, or 0 if it belongs to another
    part; 1 if the label has the first largest score, else 0.
    """
    scores = tf.cast(products, tf.float32) + bias
    highest = tf.reduce_max(scores, axis=-1)
    exponentials = tf.reduce_sum(tf.exp(scores - highest[:, None]), axis=-1)
    is_label = tf.range(tf.shape(scores)[1]) == labels[:, None]
    label_scores = tf.reduce_sum(tf.where(is_label, scores, 0.0), axis=1)
    is_first = tf.cast(_first_highest(scores, highest) == labels, tf.float32)
    return tf.stack([highest, exponentials, label_scores, is_first])


@graphs.function(jit_compile=True)
def combine(statistics: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the weighted loss, the weighted number of correct predictions, and log(sum(exp(scores))) of each row [M].

    statistics: [parts, 4, M], from all parts in the order of their classes.
    """
    highest_of_parts, exponentials, label_scores, is_first = tf.unstack(statistics, axis=1)  # [parts, M]
    highest = tf.reduce_max(highest_of_parts, axis=0)
    total = tf.math.log(tf.reduce_sum(exponentials * tf.exp(highest_of_parts - highest), axis=0)) + highest
    label_score = tf.reduce_sum(label_scores, axis=0)
    predicts = tf.range(tf.shape(statistics)[0])[:, None] == tf.argmax(highest_of_parts, axis=0, output_type=tf.int32)
    correct = tf.reduce_sum(tf.where(predicts, is_first, 0.0), axis=0)
    return tf.reduce_sum((total - label_score) * weights), tf.reduce_sum(correct * weights), total


@graphs.function(jit_compile=True)
def part_gradients(
    products: tf.Tensor, bias: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, total: tf.Tensor
) -> list[tf.Tensor]:
    """Return the gradients of the loss by products and bias. total: as `combine` returns it."""
    scores = tf.cast(products, tf.float32) + bias
    is_label = tf.cast(tf.range(tf.shape(scores)[1]) == labels[:, None], tf.float32)
    by_scores = (tf.exp(scores - total[:, None]) - is_label) * weights[:, None]
    return [tf.cast(by_scores, products.dtype), tf.reduce_sum(by_scores, axis=0)]


def binary(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor, positive: tf.Tensor) -> Measure:
    """Return the binary cross-entropy of logits with labels 0 and 1, float32, and weights; all are [..., C].

    positive: factor of the loss where the label is 1 [C], `pos_weight` of PyTorch's BCEWithLogitsLoss. With logit x and
    l = 1 + (positive - 1) label, the loss is (1 - label) x + l (log(1 + exp(-|x|)) + max(-x, 0)). This does not
    overflow.
    """
    loss = tf.nn.weighted_cross_entropy_with_logits(labels, logits, positive)
    correct = tf.cast((logits > 0) == (labels > 0), tf.float32)
    return Measure(tf.reduce_sum(loss * weights), tf.reduce_sum(correct * weights))


def detection(logits: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> Detection:
    """Return the binary cross-entropy of logits with labels 0 or 1, float32, and weights; all are [...]."""
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    predicted = tf.cast(logits > 0, tf.float32)
    correct = tf.cast(predicted == labels, tf.float32)
    return Detection(*(tf.reduce_sum(x * weights) for x in (losses, correct, labels, predicted, predicted * labels)))


def span(start_logits: tf.Tensor, end_logits: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> Measure:
    """Return the sum over texts of the mean of the start's and the end's cross-entropy.

    logits: [B, T]. starts, ends: positions [B]. A prediction is correct if both positions are.
    """
    losses = [
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        for labels, logits in ((starts, start_logits), (ends, end_logits))
    ]
    correct = tf.equal(tf.argmax(start_logits, -1, tf.int32), starts) & tf.equal(
        tf.argmax(end_logits, -1, tf.int32), ends
    )
    return Measure(tf.reduce_sum(losses[0] + losses[1]) / 2, tf.reduce_sum(tf.cast(correct, tf.float32)))


def soft_labels(logits: tf.Tensor, taught: tf.Tensor, weights: tf.Tensor, temperature: float) -> tf.Tensor:
    """Return the weighted sum over rows of T^2 KL(softmax(taught / T) || softmax(logits / T)) (Hinton et al. 2015).

    logits, taught: [..., C] of any type. weights: [...]. T is the temperature. The factor T^2 keeps the gradient as
    large as at T = 1.
    """
    own, theirs = (tf.nn.log_softmax(tf.cast(x, tf.float32) / temperature) for x in (logits, taught))
    divergence = tf.reduce_sum(tf.exp(theirs) * (theirs - own), axis=-1)
    return temperature**2 * tf.reduce_sum(divergence * weights)


def soft_binary(logits: tf.Tensor, taught: tf.Tensor, weights: tf.Tensor, temperature: float) -> tf.Tensor:
    """Return the weighted sum of T^2 KL where the sigmoid of each logit is a separate probability; all are [..., C]."""
    own, theirs = logits / temperature, taught / temperature
    probabilities = tf.sigmoid(theirs)
    divergence = tf.nn.sigmoid_cross_entropy_with_logits(probabilities, own)
    divergence -= tf.nn.sigmoid_cross_entropy_with_logits(probabilities, theirs)
    return temperature**2 * tf.reduce_sum(divergence * weights)
