#!/usr/bin/env python3
"""Makes the bucket `haul` (s3 ENDPOINT KEY SECRET) or the container `haul` (azure ENDPOINT ACCOUNT KEY): one signed request,
so that no tool of either is needed. Exit code 1: the server did not do it."""
import base64
import datetime
import hashlib
import hmac
import sys
import urllib.error
import urllib.request

kind, endpoint, key, secret = sys.argv[1:]
now = datetime.datetime.now(datetime.timezone.utc)


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256)


def s3():
    host, day, time = endpoint.split("://")[1], now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    empty = hashlib.sha256(b"").hexdigest()
    names = "host;x-amz-content-sha256;x-amz-date"
    request = f"PUT\n/haul\n\nhost:{host}\nx-amz-content-sha256:{empty}\nx-amz-date:{time}\n\n{names}\n{empty}"
    scope = f"{day}/us-east-1/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing = sign(signing, part).digest()
    signature = sign(signing, text).hexdigest()
    return f"{endpoint}/haul", {
        "x-amz-date": time, "x-amz-content-sha256": empty,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}",
    }


def azure():
    date = now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
    text = "PUT" + "\n" * 12 + headers + f"/{key}/{key}/haul\nrestype:container"
    signature = base64.b64encode(sign(base64.b64decode(secret), text).digest()).decode()
    return f"{endpoint}/haul?restype=container", {
        "x-ms-date": date, "x-ms-version": "2021-08-06", "Authorization": f"SharedKey {key}:{signature}",
    }


url, headers = {"s3": s3, "azure": azure}[kind]()
try:
    urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers), timeout=10)
except urllib.error.HTTPError as error:
    sys.exit(0 if error.code == 409 else f"{error}: {error.read()[:300]!r}")
except OSError as error:
    sys.exit(str(error))
