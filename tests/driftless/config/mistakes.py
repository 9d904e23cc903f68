"""Mistakes of newcomers in the sync.yaml of test_mistakes.py, and what is said of each."""

from __future__ import annotations

KEY = "followers.product-cache.redis.key"
TTL = "followers.product-cache.redis.ttl"
DURATION = "write a number and a unit: ms, s, m, h or d, as in `7d`"
NAME = "use lower-case letters, digits, `_` and `-`, begin with a letter, at most 48"
TABLES = "such as `{public.customers: {exclude: [password_hash]}, public.products: {}}`"
LOOKS = "source.dsn: must look like `postgresql://user:password@host:5432/database`"

# (what is wrong, what stands in the file, what is written there instead, what is said)
MISTAKES = [
    # -- YAML itself
    ("a tab", "  partitions: 4", "\tpartitions: 4", "9: column 1: indented with a tab: YAML takes spaces only"),
    (
        "several tabs",
        "    root: public.products\n    columns",
        "\t\troot: public.products\n\t\tcolumns",
        "14: column 1: indented with a tab, as is line 15: YAML takes spaces only",
    ),
    (
        "an asterisk",
        "[id, title, price]",
        "*",
        '15: column 14: `*` alone means something in YAML: write `"*"`\n'
        "15: views.product.columns: to show all columns, leave `columns` out",
    ),
    (
        "an asterisk in a list",
        "[id, title, price]",
        "[*]",
        '15: column 15: `*` alone means something in YAML: write `"*"`\n'
        "15: views.product.columns: to show all columns, leave `columns` out",
    ),
    (
        "a value that begins with a sign of YAML's",
        "product:{id}",
        "%product:{id}",
        "29: column 12: `%` at the start of a value means something in YAML: put the value in quotes",
    ),
    (
        "braces without quotes",
        "product:{id}",
        "{id}",
        f'29: {KEY}: is a mapping to YAML, where text is wanted: write it in quotes, such as `"product:{{id}}"`',
    ),
    (
        "a value that begins with braces",
        "product:{id}",
        "{id}:product",
        "29: column 12: a value that begins with `{` stands in quotes: else it is a mapping\n"
        f"29: {KEY}: `{{id}}:product`: must start with some text of its own, such as `id:`",
    ),
    (
        "a variable without quotes inside of braces",
        "connect:\n  url: http://127.0.0.1:58083\n",
        "connect: {url: ${DRIFTLESS_TEST_CONNECT:-http://c:1}}\n",
        "10: column 16: a value with `{` in it stands in quotes where it is inside of `{ }` or `[ ]`",
    ),
    (
        "a key twice",
        "  partitions: 4",
        "  partitions: 4\n  partitions: 5",
        "10: kafka.partitions: stands here a second time, after line 9: keep one of them",
    ),
    (
        "a follower twice",
        "  product-cache:",
        "  product-search:",
        "25: followers.product-search: stands here a second time, after line 20: keep one of them",
    ),
    ("no space after the colon", "  root: public.p", "  root:public.p", "14: column 10: write a space after the `:`"),
    ("no colon", "    root: public.p", "    root public.p", "14: column 9: write a `:` after `root`"),
    (
        "a colon in a value",
        "    columns: [id, title, price]",
        "    where: note = 'a: b'",
        "15: column 12: a value with `: ` in it stands in quotes",
    ),
    (
        "indented too deeply",
        "    columns: [id, t",
        "      columns: [id, t",
        "15: column 7: indented deeper than line 14, which has a value already and takes nothing below it",
    ),
    (
        "indented unevenly",
        "    columns: [id, t",
        "   columns: [id, t",
        "15: column 4: indented by 3 spaces, as no line above it: probably 4 are meant",
    ),
    (
        "indented too little",
        "    columns: [id, t",
        "  columns: [id, t",
        "15: views.columns: `columns` is a field of a view: indent it below the view's name",
    ),
    (
        "a quote that is not closed",
        "product:{id}",
        '"product:{id}',
        '29: column 12: the quote " that begins here is not closed',
    ),
    ("a bracket that is not closed", "price]", "price", "15: column 14: `[` is not closed by `]`"),
    (
        "quotes of a word processor",
        "product:{id}",
        "“product:{id}”",
        f"29: {KEY}: quotes are written `\"` or `'`, not as a word processor sets them",
    ),
    (
        "two documents",
        "followers:",
        "---\nfollowers:",
        "19: column 1: a second document begins here with `---`: the file holds one configuration",
    ),
    ("a tag", ": 4", ": !int 4", "9: kafka.partitions: the tag `!int` has no meaning here: leave it out"),
    # -- variables
    (
        "a variable that is not set",
        "postgresql://app:hunter2@db/shop",
        "${DRIFTLESS_TEST_DNS}",
        "3: source.dsn: the environment variable DRIFTLESS_TEST_DNS is not set; did you mean `DRIFTLESS_TEST_DSN`?",
    ),
    (
        "a variable without braces",
        "postgresql://app:hunter2@db/shop",
        "$SHOP_DSN",
        f"3: {LOOKS}; a variable is written `${{SHOP_DSN}}`",
    ),
    (
        "what cannot be a variable",
        "postgresql://app:hunter2@db/shop",
        "${shop-dsn}",
        "3: source.dsn: what follows `${` is no variable: write ${NAME}, ${NAME:-default} or ${file:PATH}; "
        "`$${` for `${`",
    ),
    (
        "a variable that is empty",
        "postgresql://app:hunter2@db/shop",
        "${DRIFTLESS_TEST_EMPTY}",
        f"3: {LOOKS} (the value comes from ${{DRIFTLESS_TEST_EMPTY}})",
    ),
    # -- keys and sections
    ("a typo", "  partitions: 4", "  partition: 4", "9: kafka.partition: unknown field; did you mean `partitions`?"),
    ("view for views", "views:", "view:", "12: view: unknown field; did you mean `views`?"),
    ("follower for followers", "followers:", "follower:", "19: follower: unknown field; did you mean `followers`?"),
    ("table for tables", "  tables:", "  table:", "4: source.table: unknown field; did you mean `tables`?"),
    (
        "tables at the top",
        "  tables:\n    public.customers: {exclude: [password_hash]}\n    public.products: {}\n",
        "tables:\n  public.customers: {exclude: [password_hash]}\n  public.products: {}\n",
        "4: tables: stands in the wrong place: it belongs below `source`",
    ),
    (
        "views below another section",
        "views:\n",
        "  views:\n",
        "12: connect.views: stands in the wrong place: it belongs at the top of the file, not indented",
    ),
    (
        "a store's field beside the store",
        "      index: products",
        "    index: products",
        "24: followers.product-search.index: stands in the wrong place: it belongs below `opensearch`",
    ),
    (
        "no root",
        "    root: public.products\n",
        "",
        "13: views.product.root: is missing, such as `root: public.products`",
    ),
    (
        "no section",
        "connect:\n  url: http://127.0.0.1:58083\n",
        "",
        "1: connect: is missing, with `url` below it",
    ),
    (
        "an unknown key",
        "name: shop",
        "name: shop\nversion: 1",
        "2: version: unknown field; known: `alerts`, `connect`, `events`, `followers`, `kafka`, `name`, `patterns`, "
        "`source`, `streams`, `views`",
    ),
    (
        "a section that stands too deep",
        "    root: public.p",
        "    events: {}\n    root: public.p",
        "14: views.product.events: stands in the wrong place: it belongs at the top of the file, not indented",
    ),
    # -- what names something else
    (
        "a table that is not captured",
        "root: public.products",
        "root: public.prodcts",
        "14: views.product.root: public.prodcts is not under source.tables; did you mean `public.products`?",
    ),
    (
        "an excluded column",
        "called: name",
        "called: password_hash",
        "18: views.customer.columns.called: `password_hash` is excluded from public.customers in line 5, so no "
        "document can show it",
    ),
    (
        "a view that there is not",
        "view: product",
        "view: prduct",
        "21: followers.product-search.view: there is no view `prduct`; did you mean `product`?",
    ),
    (
        "a table twice",
        "    public.products: {}",
        "    public.products: {}\n    products: {}",
        "7: source.tables.products: names public.products a second time, after `public.products`: keep one of them",
    ),
    ("a column twice", "title, price]", "title, id]", "15: views.product.columns: lists `id` twice"),
    # -- stores
    (
        "two stores",
        "    redis:",
        "    opensearch: {url: 'http://s:9200', index: others}\n    redis:",
        "25: followers.product-cache: has 2 stores, `opensearch` and `redis`: make a follower of each",
    ),
    (
        "no store",
        "    opensearch:\n      url: http://127.0.0.1:59200\n      index: products\n",
        "",
        "20: followers.product-search: has no store: it needs `opensearch` or `redis`",
    ),
    (
        "a store that there is not",
        "    redis:",
        "    memcached:",
        "27: followers.product-cache.memcached: unknown kind of store; known: `opensearch`, `redis`",
    ),
    (
        "a Redis key without a column",
        "product:{id}",
        "product",
        f"29: {KEY}: `product`: must name every key column once and nothing else, so `{{id}}` "
        "(`key` of the view names documents by another unique key)",
    ),
    (
        "the same index twice",
        "    redis:\n      url: redis://127.0.0.1:56379/0\n      key: product:{id}",
        "    opensearch: {url: 'http://127.0.0.1:59200', index: products}",
        "27: followers.product-cache.opensearch: writes where `product-search` of line 22 does: give each a place "
        "of its own",
    ),
    (
        "the same keys twice",
        "    opensearch:\n      url: http://127.0.0.1:59200\n      index: products\n",
        "    redis: {url: 'redis://:pw@127.0.0.1:56379', key: 'product:{sku}'}\n",
        "25: followers.product-cache.redis: writes where `product-search` of line 22 does: give each a place of "
        "its own",
    ),
    (
        "an index that is a generation's of another follower",
        "    redis:\n      url: redis://127.0.0.1:56379/0\n      key: product:{id}",
        "    opensearch: {url: 'http://127.0.0.1:59200', index: products-2}",
        "22: followers.product-search.opensearch: makes names that `product-cache` of line 27 has: give each its own",
    ),
    (
        "an index with capitals",
        "index: products",
        "index: Products*",
        "24: followers.product-search.opensearch.index: use lower-case letters, digits, `.`, `_` and `-`, begin "
        "with a letter or digit, at most 200; did you mean `products`?",
    ),
    (
        "a time to live without a unit",
        "product:{id}",
        "product:{id}\n      ttl: 30",
        f"30: {TTL}: {DURATION}; `30` of what: `30s`, `30m`, `30h`, `30d`?",
    ),
    (
        "a negative time to live",
        "product:{id}",
        "product:{id}\n      ttl: -30m",
        f"30: {TTL}: {DURATION}; it cannot be negative",
    ),
    (
        "a time to live in words",
        "product:{id}",
        "product:{id}\n      ttl: 30 minutes",
        f"30: {TTL}: {DURATION}; did you mean `30m`?",
    ),
    (
        "keep that is no duration",
        "    view: product\n",
        "    view: product\n    keep: forever\n",
        f"22: followers.product-search.keep: {DURATION}",
    ),
    (
        "a format that there is not",
        "product:{id}",
        "product:{id}\n      format: jsno",
        "30: followers.product-cache.redis.format: must be 'json' or 'hash'; did you mean `json`?",
    ),
    # -- servers
    ("a DSN without a scheme", "postgresql://", "", f"3: {LOOKS}"),
    ("another database", "postgresql://", "mysql://", "3: source.dsn: the source must be Postgres, not mysql"),
    (
        "a URL without a scheme",
        "http://127.0.0.1:58083",
        "127.0.0.1:58083",
        "11: connect.url: must begin with `http://` or `https://` and a host, as in `http://connect:8083`",
    ),
    (
        "a store's URL without a scheme",
        "http://127.0.0.1:59200",
        "127.0.0.1:59200",
        "23: followers.product-search.opensearch.url: must look like `https://user:password@host:9200`",
    ),
    (
        "brokers with a scheme",
        "127.0.0.1:59092",
        "kafka://kafka:9092",
        "8: kafka.bootstrap: write host:port without a scheme, as in `kafka:9092`; TLS is set in `kafka.security`",
    ),
    (
        "a broker without a port",
        "127.0.0.1:59092",
        "kafka",
        "8: kafka.bootstrap: write host:port of each broker, separated by commas, as in `kafka-1:9092,kafka-2:9092`",
    ),
    (
        "a list of brokers",
        "127.0.0.1:59092",
        "[kafka:9092]",
        "8: kafka.bootstrap: is a list, where text is wanted, such as `kafka-1:9092,kafka-2:9092`",
    ),
    (
        "a client setting that there is not",
        "  partitions: 4",
        "  options: {request.timout.ms: 5000}",
        "9: kafka.options.request.timout.ms: the Kafka client has no such setting; did you mean `request.timeout.ms`?",
    ),
    (
        "a client setting that is ours",
        "  partitions: 4",
        "  options: {isolation.level: read_uncommitted}",
        "9: kafka.options: `isolation.level` cannot be set: what driftless promises rests on its own value of it",
    ),
    (
        "the brokers twice",
        "  partitions: 4",
        "  options: {bootstrap.servers: kafka}",
        "9: kafka.options: `bootstrap.servers` is what `kafka.bootstrap` says: leave it out here",
    ),
    # -- types
    ("a number in words", ": 4", ": four", "9: kafka.partitions: must be a whole number, such as `4`"),
    ("a truth value for a number", ": 4", ": true", "9: kafka.partitions: `true` is no number"),
    ("too small a number", ": 4", ": 0", "9: kafka.partitions: must be at least 1"),
    (
        "a list of tables",
        "    public.customers: {exclude: [password_hash]}\n    public.products: {}\n",
        "    - public.customers\n    - public.products\n",
        f"4: source.tables: is a list, where a mapping is wanted, {TABLES}",
    ),
    (
        "a view that is a table's name",
        "  customer:\n    root: public.customers\n    columns: {id: id, called: name}",
        "  customer: public.customers",
        "16: views.customer: is text, where a mapping is wanted, such as `{root: public.products}`",
    ),
    (
        "columns without brackets",
        "[id, title, price]",
        "id, price",
        "15: views.product.columns: is text, where a list is wanted, such as `[id, price]`",
    ),
    (
        "a section with nothing in it",
        "kafka:\n  bootstrap: 127.0.0.1:59092\n  partitions: 4\n",
        "kafka:\n",
        "7: kafka: has no value: a mapping is wanted, such as `{bootstrap: kafka-1:9092,kafka-2:9092}`",
    ),
    ("a name with capitals and spaces", "shop", "My Shop", f"1: name: {NAME}; did you mean `my-shop`?"),
    (
        "a view's name with capitals",
        "  product:\n",
        "  Product:\n",
        f"13: views.Product: {NAME}; did you mean `product`?",
    ),
    (
        "a name that is a number",
        "name: shop",
        "name: 42",
        "1: name: is a number or a truth value to YAML, where text is wanted: write it in quotes",
    ),
]
