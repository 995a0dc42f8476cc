import json

from reqless.abstract import AbstractJobData, AbstractJobProcessor


class Numbers(AbstractJobData):
    def __init__(self, a, b):
        self.a, self.b = a, b

    def to_json(self):
        return json.dumps({"a": self.a, "b": self.b})

    @classmethod
    def from_json(cls, data):
        return cls(**json.loads(data))


class Adder(AbstractJobProcessor[Numbers]):
    @staticmethod
    def process(job):
        numbers = Adder.deserialize_data_json(job.data)
        job.data = json.dumps({"a": numbers.a, "b": numbers.b, "sum": numbers.a + numbers.b})
        job.complete()
