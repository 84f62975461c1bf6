"""Fixtures of the tests of the service, for those of a search in it."""

from tests.serve.conftest import folders as folders
from tests.serve.conftest import index as index
from tests.serve.conftest import models as models
