"""Headers, methods and parameters of requests: how lenient servers read them, and what could be another request."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

_PLAIN = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PLAIN_VALUE = re.compile(r"[\t -~]*", re.ASCII)
_NOT_PLAIN = re.compile(r"[^a-z0-9-]", re.ASCII)
# Methods whose bodies every server reads. After another one a server may take the body for the next request.
METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "PROPFIND", "PROPPATCH", "REPORT", "SEARCH", "QUERY"})
# Methods that are about the request's own path and no other, as COPY, MOVE and LINK are not.
USUAL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY")
_NAMES_A_METHOD = re.compile(r"(?:method|methodoverride|verb)\Z")
_NOT_A_LETTER = re.compile(r"[^a-z]", re.ASCII)
# Where PHP and servers in C stop reading the name of a parameter.
_END_OF_NAME = re.compile(r"[\0\[]")
_MOST_DECODINGS = 3


def canonical_header(name: str) -> str:
    """The one name that CGI and its heirs make of all its spellings: `X_Key` and `x.key` are `x-key`."""
    return _NOT_PLAIN.sub("-", name.lower())


def is_plain_header(name: str, value: str) -> bool:
    """Whether no server takes it for a header of another name, or for two: some end a line at the byte 0x85."""
    return _PLAIN.fullmatch(name) is not None and _PLAIN_VALUE.fullmatch(value) is not None


def overriding_parameters(query: str) -> list[str]:
    """The names in a query by which a framework could take the request for one of another method."""
    names = [part.partition("=")[0] for part in re.split("[&;]", query)]
    return [name for name in names if any(_NAMES_A_METHOD.search(reading) for reading in _readings(name))]


def _readings(name: str) -> Iterator[str]:
    """Its letters, as servers find them that decode once, or once too often."""
    for _ in range(_MOST_DECODINGS):
        name = unquote_plus(name)
        yield _NOT_A_LETTER.sub("", _END_OF_NAME.split(name, 1)[0].lower())


# Headers that are known to leave a request what its first line says. A list of those that do not would have gaps: every
# proxy, framework and store has its own header for another path, method, host or source. So a header that is not here
# needs a rule that lists it. A name that ends in `*` is a family.
# Of HTTP itself: what an answer may look like, from which state on, what the body is, and who asks.
_STANDARD = """
    a-im accept accept-ch accept-charset accept-datetime accept-encoding accept-features accept-language accept-patch
    accept-post accept-ranges accept-signature accept-version age authorization cache-control connection
    content-digest content-disposition content-encoding content-language content-length content-md5 content-range
    content-type cookie cookie2 date digest dnt dpop early-data expect from host if-match if-modified-since
    if-none-match if-range if-unmodified-since keep-alive last-event-id max-forwards mime-version origin pragma prefer
    priority proxy-authorization proxy-connection range referer repr-digest request-range save-data signature
    signature-input te trailer transfer-encoding upgrade upgrade-insecure-requests user-agent via want-content-digest
    want-digest want-repr-digest warning http2-settings idempotency-key x-idempotency-key idempotent-replay-token
    access-control-request-headers access-control-request-method access-control-request-private-network
    sec-* device-memory downlink dpr ect purpose rtt service-worker service-worker-navigation-preload viewport-width
    width x-purpose x-moz
"""
# Who asks, and on whose behalf.
_CLIENTS = """
    api-key apikey api-version api-user-agent app-version circle-token client-version http-referer job-token
    private-token time-zone timezone x-access-token x-api-key x-api-token x-api-version x-apikey x-app-id x-app-name
    x-app-version x-auth-email x-auth-key x-auth-token x-authorization x-client-id x-client-info x-client-name
    x-client-data x-client-type x-client-user-agent x-client-version x-csrf-token x-csrftoken x-device-id x-language
    x-locale x-oauth-token x-platform x-requested-with x-sdk-name x-sdk-version x-session-id x-session-token x-timezone
    x-title x-token x-user-agent x-version x-xsrf-token xsrf-token
"""
_TRACING = """
    b3 baggage correlation-context correlation-id elastic-apm-traceparent newrelic request-context request-id
    sentry-trace traceparent traceresponse tracestate uber-trace-id uberctx-* x-amzn-trace-id x-b3-flags
    x-b3-parentspanid x-b3-sampled x-b3-spanid x-b3-traceid x-client-request-id x-client-trace-id
    x-cloud-trace-context x-correlation-id x-datadog-* x-ot-span-context x-request-id x-span-id x-trace-id
    x-transaction-id
"""
_SERVICES = """
    anthropic-* openai-* x-amzn-bedrock-* x-cohere-api-key x-fern-* x-hf-bill-to x-openai-api-key x-speakeasy-*
    x-stainless-* x-use-cache x-wait-for-model mcp-protocol-version mcp-session-id
    graphql-features x-github-api-version x-github-media-type x-github-next-global-id x-github-otp
    apollo-require-preflight apollographql-client-name apollographql-client-version x-apollo-*
    stripe-* x-stripe-client-telemetry x-stripe-client-user-agent
    connect-protocol-version connect-timeout-ms grpc-accept-encoding grpc-encoding grpc-timeout x-grpc-web
    consistencylevel dataserviceversion maxdataserviceversion odata-isolation odata-maxversion odata-version
    dd-api-key dd-application-key kbn-version kbn-xsrf notion-version osd-xsrf soapaction
    tus-resumable upload-checksum upload-defer-length upload-length upload-metadata upload-offset
    x-algolia-agent x-algolia-api-key x-algolia-application-id x-atlassian-token x-clickhouse-format x-clickhouse-key
    x-clickhouse-user x-consul-token x-elastic-client-meta x-elastic-product x-figma-token x-hasura-admin-secret
    x-honeycomb-team x-nomad-token x-opaque-id x-pinecone-api-version x-pjax x-postmark-server-token x-rapidapi-key
    x-sentry-auth x-shopify-access-token x-typesense-api-key x-vault-request x-vault-token x-weaviate-api-key
    hx-boosted hx-current-url hx-request hx-target hx-trigger hx-trigger-name turbo-frame x-inertia x-inertia-version
"""
_PACKAGES = """
    cargo-protocol disable-module-fetch docker-content-digest docker-distribution-api-version docker-upload-uuid
    git-protocol npm-* pacote-* x-cargo-auth x-nuget-apikey x-nuget-client-version x-nuget-protocol-version
    x-nuget-session-id x-spec
"""
# Not their families: x-amz-copy-source and its like read what no rule has seen.
_CLOUDS = """
    amz-sdk-* x-amz-acl x-amz-algorithm x-amz-api-version x-amz-checksum-* x-amz-client-context x-amz-content-sha256
    x-amz-credential x-amz-date x-amz-decoded-content-length x-amz-expected-bucket-owner x-amz-invocation-type
    x-amz-log-type x-amz-max-parts x-amz-meta-* x-amz-object-attributes x-amz-part-number-marker x-amz-region-set
    x-amz-request-payer x-amz-sdk-checksum-algorithm x-amz-security-token x-amz-server-side-encryption*
    x-amz-signature x-amz-signedheaders x-amz-storage-class x-amz-tagging x-amz-target x-amz-te x-amz-trailer
    x-amz-user-agent
    x-goog-acl x-goog-api-client x-goog-api-key x-goog-authuser x-goog-content-length-range x-goog-content-sha256
    x-goog-date x-goog-encryption-* x-goog-fieldmask x-goog-gcs-idempotency-token x-goog-hash
    x-goog-iam-authorization-token x-goog-if-generation-match x-goog-if-metageneration-match x-goog-meta-*
    x-goog-resumable x-goog-security-token x-goog-storage-class x-goog-upload-command
    x-goog-upload-header-content-length x-goog-upload-header-content-type x-goog-upload-offset x-goog-upload-protocol
    x-goog-user-project x-upload-content-length x-upload-content-type
    ocp-apim-subscription-key ocp-apim-trace x-ms-access-tier x-ms-blob-cache-control x-ms-blob-content-*
    x-ms-blob-type x-ms-client-request-id x-ms-client-session-id x-ms-content-crc64 x-ms-correlation-request-id
    x-ms-date x-ms-encryption-* x-ms-if-tags x-ms-lease-id x-ms-meta-* x-ms-range x-ms-range-get-content-md5
    x-ms-request-id x-ms-return-client-request-id x-ms-tags x-ms-useragent x-ms-version
"""
_LISTED = frozenset(" ".join((_STANDARD, _CLIENTS, _TRACING, _SERVICES, _PACKAGES, _CLOUDS)).split())
_FAMILIES = tuple(name.removesuffix("*") for name in _LISTED if name.endswith("*"))


def is_harmless_header(name: str) -> bool:
    """Whether a header by this name, in its one spelling, is known to ask for nothing but the request itself."""
    return name in _LISTED or name.startswith(_FAMILIES)
