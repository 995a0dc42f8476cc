# Runs handlers in one warm interpreter. Requests come on standard input, answers go to what was standard output;
# what handlers print is theirs and is sent back with each job.
import ast, io, json, os, sys, time, traceback, types

_in = os.fdopen(os.dup(0), 'rb', 1 << 16)
_out = os.fdopen(os.dup(1), 'wb', 1 << 16)
_null = os.open(os.devnull, os.O_RDWR)
os.dup2(_null, 0)
os.dup2(2, 1)


class Retry(Exception):
    """The job could not finish; it is run again later."""
    exitcode = 100


class Failed(Exception):
    """The job ran properly and cannot succeed."""
    exitcode = 400


_haul = types.ModuleType('haul')
_haul.Retry, _haul.Failed = Retry, Failed
sys.modules['haul'] = _haul
_STATUS = {0: 200, 64: 400, 65: 400, 75: 100}


def _exit(error):
    code = error.code
    if code is None:
        return 200, ''
    if not isinstance(code, int):
        return 500, str(code)
    return _STATUS.get(code, code if 100 <= code <= 255 else 500), 'exit %d' % code


def _call(run):
    """What a piece of code came to: exit code, reason, value."""
    try:
        return 200, '', run()
    except SystemExit as error:
        return _exit(error) + (None,)
    except BaseException as error:
        code = getattr(error, 'exitcode', 500)
        if not isinstance(code, int) or not 100 <= code <= 599:
            code = 500
        if isinstance(error, (Retry, Failed)):
            return code, str(error), None
        return code, ''.join(traceback.format_exception(error))[-4000:], None


class _Handler:
    def __init__(self, name, parts, space):
        self.space, self.steps = space, {}
        for key in ('beforeEach', 'afterEach'):
            if parts.get(key):
                self.steps[key] = compile(parts[key], '%s:%s' % (name, key), 'exec')
        tree = ast.parse(parts['body'], name)
        defines = any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == 'handle'
                      for node in tree.body)
        code = compile(tree, name, 'exec')
        self.handle = None
        if defines:
            exec(code, space)
            self.handle = space['handle']
        self.code = code

    def step(self, key):
        if key in self.steps:
            exec(self.steps[key], self.space)

    def job(self, payload):
        if self.handle is None:
            sys.stdin = io.TextIOWrapper(io.BytesIO(payload), 'utf-8', 'surrogateescape')
            exec(self.code, dict(self.space, __name__='__main__'))
            return None
        body = payload[:-1] if payload.endswith(b'\n') and not _raw else payload
        try:
            body = body.decode()
        except UnicodeDecodeError:
            pass
        value = self.handle(body)
        if hasattr(value, '__await__'):
            import asyncio
            value = asyncio.run(_wait(value))
        return value


async def _wait(value):
    return await value


def _bytes(value):
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value).encode()


def _say(kind, code, began, output=b'', result=None, reason=''):
    micros = (time.perf_counter_ns() - began) // 1000
    reason = reason.encode('utf-8', 'replace')
    size = -1 if result is None else len(result)
    _out.write(b'%s %d %d %d %d %d\n' % (kind, code, micros, len(output), size, len(reason)))
    _out.write(output)
    _out.write(result or b'')
    _out.write(reason)


_types, _spaces, _raw, _type = {}, {}, False, None


def _load(name, parts):
    space = _spaces.setdefault('', {'__name__': 'handler', 'haul': _haul})
    if parts.get('first') and parts.get('before'):
        exec(compile(parts['before'], '%s:before' % name, 'exec'), space)
    _types[name] = _Handler(name, parts, dict(space))


def _job(words):
    global _raw
    _raw = words[2] == b'1'
    payload = _in.read(int(words[3]))
    os.environ['HAUL_JOB_ID'] = words[1].decode()
    sys.stdout = captured = io.TextIOWrapper(io.BytesIO(), 'utf-8', 'surrogateescape', write_through=True)
    began = time.perf_counter_ns()
    code, reason, value = _call(lambda: _types[_type].job(payload))
    result = None
    if value is not None and code == 200:
        try:
            result = _bytes(value)
        except BaseException as error:
            code, reason = 500, 'the result cannot be written as JSON: %s' % error
    try:
        captured.flush()
        output = captured.buffer.getvalue()
    except ValueError:
        output = b''
    _say(b'j', code, began, output, result, reason)


while True:
    if not _in.peek(1):
        break
    line = _in.readline()
    words = line.split()
    if not words:
        break
    began = time.perf_counter_ns()
    if words[0] == b'L':
        parts = json.loads(_in.read(int(words[2])))
        code, reason, _ = _call(lambda: _load(words[1].decode(), parts))
        _say(b'l', code, began, reason=reason)
    elif words[0] == b'B':
        _type = words[1].decode()
        os.environ['HAUL_JOBTYPE'] = _type
        code, reason, _ = _call(lambda: _types[_type].step('beforeEach'))
        _say(b'b', code, began, reason=reason)
    elif words[0] == b'J':
        _job(words)
    elif words[0] == b'A':
        code, reason, _ = _call(lambda: _types[_type].step('afterEach'))
        _say(b'a', code, began, reason=reason)
        _out.flush()
    if words[0] != b'J' or int(words[4]):
        _out.flush()
