"""The base class the tests shipped with qless-py are written against. The source archive has the tests but not this
file, so it is written anew here, from what they use of it: `self.client` and `self.worker`, and an empty server."""

import unittest

import qless


class TestQless(unittest.TestCase):
    def setUp(self):
        self.client = qless.Client()
        self.client.redis.flushdb()
        self.worker = qless.Client(hostname="worker")

    def tearDown(self):
        self.client.redis.flushdb()
