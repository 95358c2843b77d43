-- The changelog of an instance's state (contract 8): a row for every row that a server's tables gained, lost or changed.
--
-- Run as one transaction, as often as one likes. The names in `public` and the sequence of ids are those that the Python
-- framework gives them, so that either side finds the other's changelog and goes on with it; each replaces the other's
-- functions under the tables' triggers, and a row of either reads the same.
--
-- Ids are given in the order in which transactions commit, so that a reader who has seen an id will never be handed a
-- lower one, and so that a call's own rows lie between the ids read before and after it. A writer must not hold the lock
-- that this takes for as long as its transaction lasts: servers that have nothing to do with each other would wait for
-- each other, and two of them could deadlock. So a changed row gets a provisional, negative id at once, and a trigger
-- deferred to the commit takes the lock and numbers the transaction's rows. Nobody else can see a negative id: it is
-- gone before the transaction commits.

CREATE SCHEMA IF NOT EXISTS agent_env_internal;

-- Apart from the servers' own schemas and `public`, where a server may rewind every sequence it finds.
CREATE SEQUENCE IF NOT EXISTS agent_env_internal._changelog_id_seq;
CREATE SEQUENCE IF NOT EXISTS agent_env_internal._changelog_provisional_seq INCREMENT BY -1;

CREATE TABLE IF NOT EXISTS public._changelog (
    id bigint PRIMARY KEY DEFAULT nextval('agent_env_internal._changelog_id_seq'),
    "timestamp" timestamptz NOT NULL DEFAULT now(),
    schema_name text NOT NULL,
    table_name text NOT NULL,
    operation text NOT NULL CHECK (operation IN ('INSERT', 'UPDATE', 'DELETE')),
    row_id text,
    summary text NOT NULL,
    changed_fields jsonb
);

-- On every table of an installed schema, after each row. What runs once a row stands in this one body: each call of a
-- function of SQL would cost as much as all the rest.
CREATE OR REPLACE FUNCTION public._changelog_trigger_fn() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    was jsonb;
    is_now jsonb;
    changed jsonb;
    told text;
    key text[];
    named text;
    provisional bigint := nextval('agent_env_internal._changelog_provisional_seq');
    this_transaction text := pg_current_xact_id()::text;
BEGIN
    BEGIN
        IF TG_OP <> 'INSERT' THEN was := to_jsonb(OLD); END IF;
        IF TG_OP <> 'DELETE' THEN is_now := to_jsonb(NEW); END IF;
        IF TG_OP = 'UPDATE' THEN
            SELECT coalesce(jsonb_object_agg(field, jsonb_build_object('old', was -> field, 'new', value)), '{}'),
                   coalesce(string_agg(field || ': ' || left((was -> field)::text, 60) || ' -> ' || left(value::text, 60),
                                       ', '), 'nothing changed')
            INTO changed, told
            FROM jsonb_each(is_now) AS fields(field, value)
            WHERE value IS DISTINCT FROM was -> field;
        ELSE
            changed := coalesce(is_now, was);
            told := lower(TG_OP) || ' ' || left(changed::text, 200);
        END IF;
    EXCEPTION WHEN OTHERS THEN
        -- A row that jsonb cannot hold (a json column with \u0000, half a gigabyte of text) must not fail the write.
        changed := NULL;
        told := lower(TG_OP) || ' of a row that cannot be shown: ' || SQLERRM;
    END;

    -- What names a row: its primary key's value, JSON of a composite key, without a key a column `id` if there is one.
    -- The key comes with the trigger, for looking it up takes as long as all the rest; a trigger that the Python
    -- framework made brings none, and a column may have been renamed since.
    IF TG_NARGS > 0 AND coalesce(is_now, was) ?& TG_ARGV THEN
        key := TG_ARGV;
    ELSE
        SELECT array_agg(attribute.attname ORDER BY part.place) INTO key
        FROM pg_index AS index
        CROSS JOIN LATERAL unnest(index.indkey) WITH ORDINALITY AS part(attnum, place)
        JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = part.attnum
        WHERE index.indrelid = TG_RELID AND index.indisprimary;
    END IF;
    CASE coalesce(cardinality(key), 0)
        WHEN 0 THEN named := coalesce(is_now, was) ->> 'id';
        WHEN 1 THEN named := coalesce(is_now, was) ->> key[array_lower(key, 1)];
        ELSE
            SELECT jsonb_object_agg(part, coalesce(is_now, was) -> part)::text INTO named FROM unnest(key) AS part;
    END CASE;

    IF split_part(coalesce(current_setting('agent_env.changelog_first', true), ''), ':', 1) <> this_transaction THEN
        PERFORM set_config('agent_env.changelog_first', this_transaction || ':' || provisional, true);
    END IF;
    INSERT INTO public._changelog (id, schema_name, table_name, operation, row_id, summary, changed_fields)
    VALUES (provisional, TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP, named, told, changed);
    RETURN NULL;
END;
$$;

-- Before a TRUNCATE, which no trigger sees row by row: each row that it takes away is a deleted row.
CREATE OR REPLACE FUNCTION agent_env_internal._changelog_truncate_fn() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    named text;
    any_row boolean;
    provisional bigint := nextval('agent_env_internal._changelog_provisional_seq');
    this_transaction text := pg_current_xact_id()::text;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM ONLY %I.%I)', TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO any_row;
    IF NOT any_row THEN
        RETURN NULL;
    END IF;
    SELECT CASE count(*)
        WHEN 0 THEN $q$gone ->> 'id'$q$
        WHEN 1 THEN format('gone ->> %L', min(attribute.attname))
        ELSE format('jsonb_build_object(%s)::text',
                    string_agg(format('%1$L, gone -> %1$L', attribute.attname), ', ' ORDER BY part.place))
    END INTO named
    FROM pg_index AS index
    CROSS JOIN LATERAL unnest(index.indkey) WITH ORDINALITY AS part(attnum, place)
    JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = part.attnum
    WHERE index.indrelid = TG_RELID AND index.indisprimary;
    IF split_part(coalesce(current_setting('agent_env.changelog_first', true), ''), ':', 1) <> this_transaction THEN
        PERFORM set_config('agent_env.changelog_first', this_transaction || ':' || provisional, true);
    END IF;
    BEGIN
        EXECUTE format(
            $q$
            INSERT INTO public._changelog (id, schema_name, table_name, operation, row_id, summary, changed_fields)
            SELECT CASE WHEN row_number() OVER () = 1 THEN $3
                        ELSE nextval('agent_env_internal._changelog_provisional_seq') END,
                   $1, $2, 'DELETE', %s, 'delete ' || left(gone::text, 200), gone
            FROM (SELECT to_jsonb(part) AS gone FROM ONLY %I.%I AS part) AS rows
            $q$,
            named, TG_TABLE_SCHEMA, TG_TABLE_NAME
        ) USING TG_TABLE_SCHEMA, TG_TABLE_NAME, provisional;
    EXCEPTION WHEN OTHERS THEN
        EXECUTE format(
            $q$
            INSERT INTO public._changelog (id, schema_name, table_name, operation, summary)
            SELECT CASE WHEN row_number() OVER () = 1 THEN $3
                        ELSE nextval('agent_env_internal._changelog_provisional_seq') END,
                   $1, $2, 'DELETE', 'delete of a row that cannot be shown: ' || $4
            FROM ONLY %I.%I
            $q$,
            TG_TABLE_SCHEMA, TG_TABLE_NAME
        ) USING TG_TABLE_SCHEMA, TG_TABLE_NAME, provisional, SQLERRM;
    END;
    RETURN NULL;
END;
$$;

-- At the commit, once a transaction: the final ids. The lock is the one that the Python framework's writers take.
-- The plans are pinned because a cached one knows nothing of negative ids and would read the whole table.
CREATE OR REPLACE FUNCTION agent_env_internal._changelog_number_fn() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('public._changelog'));
    UPDATE public._changelog AS entry
    SET id = numbered.id
    FROM (
        SELECT pending.id AS provisional, nextval('agent_env_internal._changelog_id_seq') AS id
        FROM (SELECT id FROM public._changelog WHERE id <= NEW.id ORDER BY id DESC) AS pending
    ) AS numbered
    WHERE entry.id = numbered.provisional;
    -- Under SET CONSTRAINTS ALL IMMEDIATE the transaction may go on: its next row is a first one again.
    PERFORM set_config('agent_env.changelog_first', '', true);
    RETURN NULL;
END;
$$;

DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger
        WHERE tgrelid = 'public._changelog'::regclass AND tgname = '_changelog_number'
    ) THEN
        CREATE CONSTRAINT TRIGGER _changelog_number AFTER INSERT ON public._changelog
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
        WHEN (NEW.id < 0 AND split_part(current_setting('agent_env.changelog_first', true), ':', 2) = NEW.id::text)
        EXECUTE FUNCTION agent_env_internal._changelog_number_fn();
    END IF;
END;
$$;

-- Begins the changelog of a schema anew: forgets its rows, and watches every table that it has now.
CREATE OR REPLACE FUNCTION public._install_changelog_triggers(_schema_name text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    DELETE FROM public._changelog WHERE schema_name = _schema_name;
    FOR found IN
        SELECT class.oid::regclass AS named, class.relkind, class.relispartition, key.columns
        FROM pg_catalog.pg_class AS class
        JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
        CROSS JOIN LATERAL (
            SELECT coalesce(string_agg(quote_literal(attribute.attname), ', ' ORDER BY part.place), '') AS columns
            FROM pg_catalog.pg_index AS index
            CROSS JOIN LATERAL unnest(index.indkey) WITH ORDINALITY AS part(attnum, place)
            JOIN pg_catalog.pg_attribute AS attribute
                ON attribute.attrelid = index.indrelid AND attribute.attnum = part.attnum
            WHERE index.indrelid = class.oid AND index.indisprimary
        ) AS key
        WHERE namespace.nspname = _schema_name AND class.relkind IN ('r', 'p')
            AND class.oid <> 'public._changelog'::regclass
        ORDER BY class.relname
    LOOP
        -- A partition's row trigger is its parent's; rows live, and are truncated, in the partitions alone.
        IF NOT found.relispartition THEN
            EXECUTE format('DROP TRIGGER IF EXISTS _changelog_trigger ON %s', found.named);
            EXECUTE format('CREATE TRIGGER _changelog_trigger AFTER INSERT OR UPDATE OR DELETE ON %s
                            FOR EACH ROW EXECUTE FUNCTION public._changelog_trigger_fn(%s)', found.named, found.columns);
        END IF;
        IF found.relkind = 'r' THEN
            EXECUTE format('DROP TRIGGER IF EXISTS _changelog_truncate ON %s', found.named);
            EXECUTE format('CREATE TRIGGER _changelog_truncate BEFORE TRUNCATE ON %s
                            FOR EACH STATEMENT EXECUTE FUNCTION agent_env_internal._changelog_truncate_fn()', found.named);
        END IF;
    END LOOP;
END;
$$;
