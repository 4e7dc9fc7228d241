"""AWS Signature Version 4: equal to the signatures in Amazon's published examples."""

import calendar

from datasets.objectstore.sigv4 import Signer, quoted

#: "GET Object" in "Authenticating Requests: Using the Authorization Header", Amazon S3 API Reference.
KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SIGNED_AT = calendar.timegm((2013, 5, 24, 0, 0, 0))


def signer() -> Signer:
    return Signer(KEY, SECRET, "us-east-1", "examplebucket.s3.amazonaws.com")


def test_the_published_example_is_signed_as_published() -> None:
    *headers, authorization = signer().headers("/test.txt", SIGNED_AT, {"range": "bytes=0-9"})
    assert authorization == (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )
    assert "range: bytes=0-9" in headers and "x-amz-date: 20130524T000000Z" in headers


def test_the_signing_key_of_a_day_is_not_used_on_the_next() -> None:
    reused_signer = signer()
    reused_signer.headers("/test.txt", SIGNED_AT - 86_400, {})
    assert reused_signer.headers("/test.txt", SIGNED_AT, {}) == signer().headers("/test.txt", SIGNED_AT, {})


def test_the_secret_is_neither_sent_nor_in_the_repr() -> None:
    request_signer = signer()
    assert SECRET not in repr(request_signer) + str(request_signer.headers("/a", SIGNED_AT, {"range": "bytes=0-9"}))


def test_a_key_is_percent_encoded_once_except_its_slashes() -> None:
    assert quoted("a b/ü+%25~._-") == "a%20b/%C3%BC%2B%2525~._-"
