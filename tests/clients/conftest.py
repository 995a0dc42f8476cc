import os
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "work"))
pytest.register_assert_rewrite("support", "both")

import support  # noqa: E402


def _is_haul():
    """Real Redis runs any Lua, Haul none."""
    try:
        return support.connect().execute_command("EVAL", "return 1 + 1", 0) != 2
    except Exception as error:
        if "connecting" in str(error).lower() or "refused" in str(error).lower():
            pytest.exit("no server at %s: %s" % (support.ADDRESS, error), 3)
        return True


def pytest_configure(config):
    config.addinivalue_line("markers", "haul_only: behaviour Redis has not; skipped on a real Redis")
    config.is_haul = _is_haul()


def pytest_report_header(config):
    return "server: %s at %s, redis-py %s" % (
        "Haul" if config.is_haul else "Redis", support.ADDRESS, ".".join(map(str, support.REDIS_PY)))


def pytest_collection_modifyitems(config, items):
    if not config.is_haul:
        skip = pytest.mark.skip(reason="a real Redis does not do this")
        for item in items:
            if "haul_only" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def empty():
    """Every test begins with nothing in any of the databases the tests use."""
    for number in (0, 3):
        connection = support.connect(db=number)
        connection.flushdb()
        connection.connection_pool.disconnect()


@pytest.fixture
def is_haul(request):
    return request.config.is_haul


@pytest.fixture
def raw():
    connection = support.connect()
    yield connection
    connection.connection_pool.disconnect()


@pytest.fixture
def wire():
    wire = support.Wire()
    yield wire
    wire.close()


@pytest.fixture
def wires():
    """As many raw connections as wanted."""
    made = []

    def make():
        made.append(support.Wire())
        return made[-1]

    yield make
    for wire in made:
        wire.close()


@pytest.fixture
def ear():
    ear = support.Ear("ql:*")
    yield ear
    ear.close()


@pytest.fixture
def desk():
    # A short path: the name of a unix socket may not be longer than about a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="hd") as folder:
        desk = support.Desk(os.path.join(folder, "s"))
        yield desk
        desk.close()


@pytest.fixture
def start(kit, tmp_path):
    """Starts worker processes of the package under test; ends them after the test."""
    made = []

    def make(*queues, **options):
        folder = tmp_path / ("worker-%d" % len(made))
        folder.mkdir()
        made.append(support.Process(kit.program, folder, queues, **options))
        return made[-1]

    yield make
    for process in made:
        process.close()
