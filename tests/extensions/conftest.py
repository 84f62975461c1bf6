"""Fixtures of the tests of `bert` and `data`, for those of extensions."""

from tests.bert.conftest import config as config
from tests.bert.conftest import dataset as dataset
from tests.bert.conftest import model_config as model_config
from tests.bert.conftest import shallow_config as shallow_config
from tests.bert.conftest import tokens as tokens
from tests.data.conftest import contents as contents
from tests.data.conftest import folder as folder
from tests.data.conftest import read as read
from tests.data.conftest import stage as stage
