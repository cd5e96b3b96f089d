-- Jobs. Their bytes lie in tables of their own, since a row is written anew whenever its state changes.
CREATE TABLE jobs (
  seq           INTEGER PRIMARY KEY,      -- the order in which they were accepted
  id            BLOB    NOT NULL UNIQUE CHECK (length(id) = 16),
  tenant        TEXT    NOT NULL,
  key           TEXT,                     -- the idempotency key,
  key_body      BLOB,                     -- and what came with it, hashed
  state         TEXT    NOT NULL
    CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted')),
  retry         INTEGER NOT NULL CHECK (retry IN (0, 1)),
  attempts      INTEGER NOT NULL DEFAULT 0,
  run           BLOB,                     -- the process that has it in hand,
  heard_ms      INTEGER,                  -- and when that was last heard of
  cancel_asked  INTEGER NOT NULL DEFAULT 0 CHECK (cancel_asked IN (0, 1)),
  ttl_ms        INTEGER NOT NULL,         -- kept so long after its end
  created_ms    INTEGER NOT NULL,
  ended_ms      INTEGER,
  expires_ms    INTEGER,
  request_bytes INTEGER NOT NULL,
  output_bytes  INTEGER NOT NULL DEFAULT 0,
  CHECK ((key IS NULL) = (key_body IS NULL)),
  CHECK ((state = 'running') = (run IS NOT NULL)),
  CHECK ((state = 'running') = (heard_ms IS NOT NULL)),
  CHECK ((state IN ('queued', 'running')) = (ended_ms IS NULL)),
  CHECK ((ended_ms IS NULL) = (expires_ms IS NULL))
) STRICT;

CREATE UNIQUE INDEX jobs_by_key ON jobs (tenant, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_by_tenant ON jobs (tenant);
CREATE INDEX jobs_open ON jobs (state) WHERE ended_ms IS NULL;
CREATE INDEX jobs_by_expiry ON jobs (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE job_requests (
  seq   INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
  bytes BLOB NOT NULL
) STRICT;

-- What was produced so far, then the result: one row, so that a job cannot have two.
CREATE TABLE job_outputs (
  seq   INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
  bytes BLOB NOT NULL
) STRICT;

CREATE TABLE job_webhooks (
  seq      INTEGER PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
  url      TEXT    NOT NULL,
  event_id TEXT    NOT NULL,
  state    TEXT    NOT NULL CHECK (state IN ('waiting', 'due', 'delivered', 'gave_up')),
  attempts INTEGER NOT NULL DEFAULT 0,
  due_ms   INTEGER,
  CHECK ((state = 'due') = (due_ms IS NOT NULL))
) STRICT;

CREATE INDEX job_webhooks_due ON job_webhooks (due_ms) WHERE state = 'due';

-- What is kept, counted: asked whenever a job comes.
CREATE TABLE job_tenants (
  tenant TEXT    PRIMARY KEY,
  jobs   INTEGER NOT NULL CHECK (jobs >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_totals (
  only  INTEGER PRIMARY KEY CHECK (only = 1),
  jobs  INTEGER NOT NULL CHECK (jobs >= 0),
  bytes INTEGER NOT NULL CHECK (bytes >= 0)
) STRICT;

INSERT INTO job_totals (only, jobs, bytes) VALUES (1, 0, 0);
