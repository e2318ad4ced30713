"""What a person can do about a server that refuses a connection or a statement."""

from __future__ import annotations

import psycopg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from roofwatch.db.errors import FullDiskError

# libpq and the server say these in English, unless the server is set to another language
_FULL = "the server's max_connections are used up: lower database_connections of its clients, or raise it there"
_REFUSED_CONNECTIONS = (
    (
        "server does not support ssl",
        "the server speaks no TLS: switch it on there (ssl = on), or ask for none with sslmode=disable in the URL",
    ),
    (
        "no encryption",
        "the server lets nobody in without TLS, or not from here: add sslmode=verify-full to the URL, or a line "
        "for this address to its pg_hba.conf",
    ),
    (
        "does not match host name",
        "its certificate is for another name: connect by the name that it has, or have one made for this one",
    ),
    (
        "certificate verify failed",
        "its certificate has expired, or is signed by none that is trusted here: name the file of the authority's own "
        "certificate with sslrootcert=/path/ca.pem in the URL, or sslrootcert=system for those of this machine; "
        "openssl s_client -starttls postgres -connect host:port shows what it is",
    ),
    (
        "root certificate file",
        "the authority's certificate is not where it is looked for: name its file with sslrootcert=/path/ca.pem in "
        "the URL, or sslrootcert=system for those of this machine",
    ),
    (
        "requires a valid client certificate",
        "the server asks for a certificate of ours: name it with sslcert=/path/client.pem and sslkey=/path/client.key "
        "in the URL",
    ),
    ("private key file", "the key named by sslkey must be a file that this user alone may read (chmod 600)"),
    (
        "invalid sslmode value",
        "sslmode is one of disable, allow, prefer, require, verify-ca and verify-full",
    ),
    ("weak sslmode", "with sslrootcert=system only sslmode=verify-full is good"),
    (
        "ssl error",
        "the two sides agree on no TLS: compare the server's certificate with the one that sslrootcert names, and what "
        "versions of TLS each takes",
    ),
    ("too many clients", _FULL),
    ("remaining connection slots", _FULL),
    ("too many connections", "the role or the database has a limit: raise it, or lower database_connections"),
    ("password authentication failed", "correct the user or password in the URL, PGPASSWORD or PGPASSFILE"),
    ("no password supplied", "give a password in the URL, PGPASSWORD or PGPASSFILE"),
)


def is_full(error: BaseException) -> bool:
    """Whether something failed because the server's disk is full."""
    return isinstance(error, FullDiskError) or (
        isinstance(error, DBAPIError) and isinstance(error.orig, psycopg.errors.DiskFull)
    )


def way_out_of_refusal(error: OperationalError | InterfaceError) -> str:
    """What to do where no connection comes about."""
    said = str(error.orig).lower()
    for words, way_out in _REFUSED_CONNECTIONS:
        if words in said:
            return way_out
    return "start it, or correct the database URL"


def first_line(error: DBAPIError) -> str:
    """What the server or the driver said, in a line."""
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__


def way_out_of_failure(error: DBAPIError | PoolTimeoutError, *, connections: int) -> str | None:
    """What happened to somebody who was connected, and the way out; None where that is nobody's but ours.

    Args:
        error: Of a statement, or of waiting for a connection.
        connections: The most that this process may have.
    """
    if isinstance(error, PoolTimeoutError):
        return (
            f"all {connections} connections of this process are in use, and none came free; raise database_connections "
            "(ROOFWATCH_DATABASE_CONNECTIONS), or have fewer ask at once"
        )
    if is_full(error):
        return (
            f"{first_line(error)}: the server's disk is full, and nothing half-done was kept; make room there, for "
            "example by `roofwatch db prune`, and try again"
        )
    cause = error.orig
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        return (
            f"{first_line(error)}; a role that only reads is let in by `roofwatch db grant-reader`, whatever writes "
            "needs the role that owns the tables"
        )
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return f"{first_line(error)}; this role or server only reads: use the one that owns the tables"
    if isinstance(error, (OperationalError, InterfaceError)):
        return f"lost: {first_line(error)}; nothing half-done was kept: try again"
    return None
