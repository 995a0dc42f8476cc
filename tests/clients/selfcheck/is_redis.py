"""Says yes when the server is a real Redis: that runs any Lua, Haul none."""

import os
import sys

import redis

host, _, port = os.environ["HAUL_ADDRESS"].rpartition(":")
try:
    print("yes" if redis.Redis(host=host, port=int(port)).execute_command("EVAL", "return 1 + 1", 0) == 2 else "no")
except redis.ResponseError:
    print("no")
except redis.RedisError as error:
    sys.exit("no server at %s: %s" % (os.environ["HAUL_ADDRESS"], error))
