"""What obstore 0.12 says, shortened to what matters, and what people read."""

import pytest

from tinker_atropos.rollout_files.store_errors import code_of, sentence_of

ANSWERED = "Error performing PUT http://minio:9000/b/x in 5ms - Server returned non-2xx status code: "
FAILED = (
    "Generic S3 error: Error performing PUT http://minio:9000/b/x in 5ms, after 2 retries  - HTTP error: error sending"
)


def body(code: str, message: str) -> str:
    return f"<?xml?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>\n\nDebug source: …"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{ANSWERED}404 Not Found: {body('NoSuchBucket', 'It is not there')}", "NoSuchBucket: It is not there"),
        (f"{ANSWERED}403 Forbidden: {body('AccessDenied', 'No')}", "AccessDenied: No"),
        (f"{ANSWERED}503 Service Unavailable: \n\nDebug source: …", "the server answered 503 Service Unavailable"),
        (f'{FAILED}\n\nsource: Os {{ message: "Connection refused" }}', "Connection refused"),
        (f'{FAILED}\n\nsource: Custom {{ error: "failed to lookup address" }}', "failed to lookup address"),
        (
            f"{FAILED}\n\nsource: reqwest::Error {{ kind: Request, source: TimedOut }}",
            "the server does not answer in time",
        ),
        (
            f"{FAILED}\n\nInvalidCertificate(\n  UnknownIssuer",
            "the server's certificate is not trusted (UnknownIssuer)",
        ),
        (
            "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token - HTTP error: no",
            "there are no keys: name a Secret with them, or give the pod an identity that the store knows",
        ),
        (FAILED, "HTTP error: error sending"),
        ("something new", "something new"),
        ("", ""),
    ],
)
def test_one_sentence(text: str, sentence: str) -> None:
    assert sentence_of(text, ()) == sentence


def test_no_key_is_in_it() -> None:
    text = f"{ANSWERED}403 Forbidden: {body('SignatureDoesNotMatch', 'AKIA0123456789 with s3cr3t-s3cr3t')}"
    said = sentence_of(text, ("AKIA0123456789", "s3cr3t-s3cr3t", "no"))
    assert said == "SignatureDoesNotMatch: *** with ***"


def test_it_is_short_and_one_line() -> None:
    text = ANSWERED + "500 X: " + body("Oh", "a\nb" + "c" * 999)
    assert sentence_of(text, ()) == ("Oh: a b" + "c" * 999)[:300]


@pytest.mark.parametrize(("text", "code"), [(body("NoSuchKey", "x"), "NoSuchKey"), ("no body", None)])
def test_the_servers_code(text: str, code: str | None) -> None:
    assert code_of(text) == code
