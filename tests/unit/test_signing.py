"""Signature version 4: equal to the signatures in Amazon's published examples."""

import calendar

from datasets.objectstore.sigv4 import Signer, quoted

#: "GET Object" in "Authenticating Requests: Using the Authorization Header", Amazon S3 API Reference.
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
THEN = calendar.timegm((2013, 5, 24, 0, 0, 0))


def signer() -> Signer:
    return Signer(KEY, SECRET, "us-east-1", "examplebucket.s3.amazonaws.com")


def test_the_published_example_is_signed_as_published() -> None:
    *sent, authorization = signer().headers("/test.txt", THEN, {"range": "bytes=0-9"})
    assert authorization == (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    assert "range: bytes=0-9" in sent and "x-amz-date: 20130524T000000Z" in sent


def test_the_signing_key_of_a_day_is_not_used_on_the_next() -> None:
    used = signer()
    used.headers("/test.txt", THEN - 86_400, {})
    assert used.headers("/test.txt", THEN, {}) == signer().headers("/test.txt", THEN, {})


def test_the_secret_is_neither_sent_nor_shown() -> None:
    used = signer()
    assert SECRET not in repr(used) + str(used.headers("/a", THEN, {"range": "bytes=0-9"}))


def test_a_key_is_encoded_once_and_its_slashes_stay() -> None:
    assert quoted("a b/ü+%25~._-") == "a%20b/%C3%BC%2B%2525~._-"
