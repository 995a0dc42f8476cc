import qless


class Retrying(object):
    @staticmethod
    @qless.retry(ValueError)
    def process(job):
        raise ValueError("again")
