"""Only for running these suites against a real Redis, never against Haul.

Redis since 6.2 refuses the script of qless-py, because it defines a function inside the `table` library. With
HAUL_TEST_LUA naming a copy that has the helper renamed, the package reads that copy instead of its own file.
"""

import os
import pkgutil

_text = os.environ.get("HAUL_TEST_LUA")
if _text:
    _get_data = pkgutil.get_data

    def get_data(package, resource):
        if (package, resource) == ("qless", "qless-core/qless.lua"):
            with open(_text, "rb") as file:
                return file.read()
        return _get_data(package, resource)

    pkgutil.get_data = get_data
