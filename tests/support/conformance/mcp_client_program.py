"""The program that MCP's conformance suite runs as a client: an agent that calls the tools of its server.

The suite gives it the server's URL, and in variables the scenario and what a user would know. It ends with 0
if the agent's run is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

from routelock import Agent, Runner, RunState
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolQuestion
from routelock_skills.mcp import MCPClient

CALLBACK = "http://localhost:3000/callback"
CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"

SAMPLES: Mapping[str, Any] = {"integer": 5, "number": 0.5, "boolean": True, "string": "text", "array": []}


async def main(url: str, scenario: str, known: Mapping[str, Any]) -> None:
    """Play one scenario: an agent calls all tools, and a person agrees to all that is asked."""
    server = signed_in(url, provider(url, known)) if scenario.startswith("auth/") else url
    answers = None if "2322" in scenario else agree  # those wait in a stored state
    async with MCPClient(server, on_elicitation=answers) as client:
        calls = [call(name, given) for name, given in calls_of(client, known)]
        agent = Agent("client", model=ScriptedHandler([*calls, "Done."]), tools=[*client.tools])
        result = await Runner.run(agent, "Call all of them.")
        while result.interruptions:
            state = RunState.from_json(result.state().to_json(), agents=[agent])
            for one in state.interruptions:
                state = state.approve(one, answer=answer(one.question))
            result = await Runner.run(agent, state)
    sys.stdout.write(json.dumps(result.to_input_list(), indent=1))


def agree(_: ToolQuestion) -> bool:
    """Answer a question with its defaults."""
    return True


def answer(question: ToolQuestion | None) -> Mapping[str, Any] | None:
    """Return a value for each field of a question."""
    fields = {} if question is None else question.fields
    return {name: SAMPLES.get(str(each.get("type")), "text") for name, each in fields.items()} or None


def calls_of(client: MCPClient, known: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the calls that the suite names, or one of each tool."""
    for each in known.get("toolCalls", ()):
        yield each["name"], each["arguments"]
    for name, each in client.definitions.items() if "toolCalls" not in known else ():
        if name == "json_schema_echo":
            yield name, {"schema": client.definitions["json_schema_2020_12_tool"]["inputSchema"]}
        elif name != "json_schema_2020_12_tool":
            schema = each["inputSchema"]
            fields = schema.get("properties", {})
            yield (
                name,
                {
                    field: SAMPLES.get(str(fields[field].get("type")), "text")
                    for field in schema.get("required", fields)
                },
            )


# -- OAuth, as docs/mcp.md has it --


def signed_in(url: str, auth: httpx2.Auth) -> Any:
    """Return a function that opens a transport which signs in."""

    @asynccontextmanager
    async def transport() -> AsyncGenerator[Any]:
        async with (
            httpx2.AsyncClient(auth=auth, timeout=30.0) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    return transport


class Storage:
    """Keeps the tokens of one process."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self.tokens: OAuthToken | None = None
        self.client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Browser:
    """A user who signs in at once."""

    def __init__(self) -> None:
        self.landed: Mapping[str, list[str]] = {}

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            answer = await client.get(url)
        self.landed = parse_qs(urlsplit(answer.headers["location"]).query)

    async def result(self) -> AuthorizationCodeResult:
        first = {name: values[0] for name, values in self.landed.items()}
        return AuthorizationCodeResult(code=first["code"], state=first.get("state"), iss=first.get("iss"))


def provider(url: str, known: Mapping[str, Any]) -> httpx2.Auth:
    """Return the way to sign in that fits what is known."""
    client_id, secret = known.get("client_id"), known.get("client_secret")
    if "idp_id_token" in known:
        return managed_by_an_enterprise(url, known)
    if known.get("private_key_pem"):
        signed = SignedJWTParameters(
            issuer=known["client_id"],
            subject=known["client_id"],
            signing_algorithm=known.get("signing_algorithm", "ES256"),
            signing_key=known["private_key_pem"],
        )
        return PrivateKeyJWTOAuthProvider(
            url, Storage(), known["client_id"], signed.create_assertion_provider()
        )
    if known.get("name") == "auth/client-credentials-basic":
        return ClientCredentialsOAuthProvider(url, Storage(), known["client_id"], known["client_secret"])
    registered = None
    if client_id is not None:
        method = "client_secret_basic" if secret else "none"
        registered = OAuthClientInformationFull(
            client_id=client_id,
            client_secret=secret,
            redirect_uris=[CALLBACK],  # pyright: ignore[reportArgumentType]
            token_endpoint_auth_method=method,
        )
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="routelock", redirect_uris=[CALLBACK]),  # pyright: ignore[reportArgumentType]
        Storage(registered),
        browser.open,
        browser.result,
        client_metadata_url=CLIENT_DOCUMENT,
    )


def managed_by_an_enterprise(url: str, known: Mapping[str, Any]) -> httpx2.Auth:
    """Return the way to sign in with a token of the user's identity provider."""
    metadata = httpx2.get(urljoin(url, "/.well-known/oauth-protected-resource/mcp")).json()

    async def assertion(audience: str, resource: str) -> str:
        exchange = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "audience": audience,
            "resource": resource,
            "subject_token": known["idp_id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "client_id": known["idp_client_id"],
        }
        async with httpx2.AsyncClient() as client:
            answer = await client.post(known["idp_token_endpoint"], data=exchange)
        return str(answer.json()["access_token"])

    return IdentityAssertionOAuthProvider(
        url,
        Storage(),
        known["client_id"],
        known["client_secret"],
        metadata["authorization_servers"][0],
        assertion,
        token_endpoint_auth_method="client_secret_basic",
    )


if __name__ == "__main__":
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    asyncio.run(main(sys.argv[1], os.environ["MCP_CONFORMANCE_SCENARIO"], context))
