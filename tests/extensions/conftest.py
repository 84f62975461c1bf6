"""Fixtures of other folders of tests that tests of extensions share."""

from tests.data.conftest import contents as contents
from tests.data.conftest import folder as folder
from tests.data.conftest import read as read
from tests.data.conftest import stage as stage
