"""The small datasets and configurations of the tests of `bert`, for those of extensions."""

from tests.bert.conftest import config as config
from tests.bert.conftest import dataset as dataset
from tests.bert.conftest import model_config as model_config
from tests.bert.conftest import shallow_config as shallow_config
from tests.bert.conftest import tokens as tokens
