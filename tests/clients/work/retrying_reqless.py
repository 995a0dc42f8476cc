import reqless


class Retrying(object):
    @staticmethod
    @reqless.retry(ValueError)
    def process(job):
        raise ValueError("again")
