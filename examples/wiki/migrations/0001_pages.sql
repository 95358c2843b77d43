CREATE TABLE pages (
    title text PRIMARY KEY,
    text text NOT NULL,
    edited_at timestamptz
);
