-- The shop behind the support desk: orders, refunds, devices and the manual. Money is in euro cents.

CREATE TABLE orders (
    order_id TEXT PRIMARY KEY,
    customer TEXT NOT NULL,
    item     TEXT NOT NULL,
    cents    INTEGER NOT NULL CHECK (cents > 0),
    state    TEXT NOT NULL CHECK (state IN ('processing', 'shipped', 'delivered', 'refunded'))
);

-- An order as agents are shown it.
CREATE VIEW shown_orders AS
    SELECT order_id, customer, item, printf('%d.%02d EUR', cents / 100, cents % 100) AS price, state FROM orders;

CREATE TABLE refunds (
    order_id TEXT PRIMARY KEY REFERENCES orders, -- an order is paid back once, whatever happens
    cents    INTEGER NOT NULL CHECK (cents > 0),
    reason   TEXT NOT NULL CHECK (reason <> '')
);

CREATE TABLE devices (
    serial   TEXT PRIMARY KEY,
    customer TEXT NOT NULL,
    model    TEXT NOT NULL,
    light    TEXT NOT NULL CHECK (light IN ('green', 'amber', 'blue')),
    restarts INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE manual (
    topic  TEXT PRIMARY KEY,
    advice TEXT NOT NULL
);

INSERT INTO orders VALUES
    ('A-1001', 'ada', 'Hub One',        12900, 'delivered'),
    ('A-1002', 'ada', 'Luma desk lamp',  4990, 'delivered'),
    ('A-1003', 'ada', 'Door sensor',     1950, 'shipped'),
    ('A-2001', 'bob', 'Hub One',        12900, 'delivered');

INSERT INTO devices (serial, customer, model, light) VALUES
    ('H-77', 'ada', 'Hub One', 'amber'),
    ('H-78', 'bob', 'Hub One', 'blue');

INSERT INTO manual VALUES
    ('Hub One: amber light', 'The hub has lost the Wi-Fi. Restart it; it is back when the light turns green.'),
    ('Hub One: blue light',  'The hub is updating itself. Wait, and do not restart it: that could break it.'),
    ('Luma lamp: flicker',   'Turn the bulb until it clicks.');
