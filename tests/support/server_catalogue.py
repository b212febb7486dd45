"""A catalogue of 1,279 tools as real servers name them: in snake_case, in camelCase and with dots.

Some descriptions are long, some short, and some are missing. Some parameters are described.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from routelock.tools import SearchedTool

__all__ = ["SERVER_QUESTIONS", "server_catalogue"]

_SERVERS = """
github; snake; brief; GitHub | repository: create get list fork delete search | issue: create get list
  update search lock | issue_comment: add list | pull_request: create get list update merge search |
  pull_request_review: create submit request list | pull_request_files: get | pull_request_diff: get |
  branch: create list delete | commit: get list search | file_contents: get push | release: create list get
  | workflow_run: list rerun cancel get | workflow_run_logs: download | code: search | gist: create list
  update | notification: list dismiss | user: search | team_members: list | secret_scanning_alert: list get
  | dependabot_alert: list | label: create list delete | discussion: list get | milestone: create list close
  | star: add remove list | collaborator: add remove list
gitlab; snake; long; GitLab | gitlab_project: create get list fork | gitlab_issue: create get list update
  delete | gitlab_issue_link: create delete | merge_request: create get list approve merge rebase |
  merge_request_note: create list | merge_request_diffs: get | pipeline: create get list retry cancel |
  pipeline_job: list play retry | job_output: get | gitlab_label: create list update delete | wiki_page:
  create get list update delete | gitlab_milestone: create list edit delete | gitlab_release: create list |
  namespace: list verify | repository_tree: get | ci_variable: create list update delete | runner: list
  pause
slack; dotted; none; Slack | chat: postMessage update delete scheduleMessage getPermalink postEphemeral |
  conversations: list create archive rename invite history replies members join kick setTopic | users: list
  info getPresence lookupByEmail | reactions: add remove get | files: upload list delete info | pins: add
  remove list | reminders: add list complete delete | usergroups: create list update disable | search:
  messages files | bookmarks: add list remove | dnd: setSnooze endSnooze info | team: info
jira; snake; long; Jira | jira_issue: create get update delete assign transition search | jira_comment: add
  edit list | jira_worklog: add list | jira_attachment: download upload | jira_sprint: create start close
  list | jira_sprint_issues: get | jira_board: list | jira_project: list create | jira_version: create
  release list | jira_watcher: add remove list | jira_issue_link: create remove | jira_epic: link list |
  jira_transitions: get | jira_filter: create list run | jira_component: create list | jira_field: search
notion; kebab; brief; Notion | page: create retrieve update archive | page-property: retrieve |
  block-children: append retrieve | block: update delete retrieve | database: create query update retrieve |
  comment: create retrieve | user: list retrieve | workspace: search | bot-user: retrieve | page-content:
  duplicate move
stripe; snake; brief; Stripe | customer: create retrieve update delete list search | payment_intent: create
  confirm capture cancel list | payment_link: create list deactivate | refund: create list | charge: list
  retrieve | invoice: create finalize send void pay list | invoice_item: create | subscription: create
  cancel update list resume | product: create list update archive | price: create list | coupon: create
  delete list | promotion_code: create list | dispute: list update close | balance: retrieve | payout:
  create list cancel | tax_rate: create list | billing_portal_session: create | checkout_session: create
  expire | payment_method: attach detach list | card: block issue | transfer: create reverse
aws; camel; aws; AWS | ec2Instance: run start stop reboot terminate describe | ec2Volume: create attach
  detach delete | ec2Snapshot: create delete describe copy | ec2KeyPair: create delete | securityGroup:
  create delete describe authorize | s3Bucket: create delete list | s3Object: put get delete copy list |
  s3BucketPolicy: put get | lambdaFunction: create invoke update delete list | lambdaFunctionLogs: get |
  iamUser: create delete list | iamRole: create delete attach | iamAccessKey: create rotate deactivate |
  rdsInstance: create describe reboot delete | rdsSnapshot: create restore | dynamodbTable: create scan
  delete | dynamodbItem: put get delete | sqsMessage: send receive purge | sqsQueue: create list | snsTopic:
  create publish subscribe | cloudwatchAlarm: put describe delete | cloudwatchMetric: get put |
  cloudwatchLogs: query | route53Record: upsert list | ecsService: update describe | ecrImage: list delete |
  secretValue: get put rotate | costAndUsage: get | budget: create describe | cloudformationStack: create
  update delete describe | ssmParameter: get put | stepFunctionExecution: start describe stop
kubernetes; kubectl; brief; a Kubernetes cluster | pods: list get delete exec log top | pod: run attach |
  deployment: scale rollout_restart rollout_undo describe | resource: apply create delete get list patch |
  namespaces: list create | nodes: list cordon drain top | events: list | helm_chart: install upgrade
  uninstall | helm_release: list rollback | configmap: create get | secret: create get | port: forward |
  context: list use | job: create delete | cronjob: suspend create | service: expose list | ingress: create
  list | quota: set get
gcalendar; camel; google; Google Calendar | calendarEvent: insert get list patch delete move quickAdd |
  calendarEventInstances: list | calendar: insert list delete clear | calendarAcl: insert list delete |
  calendarFreeBusy: query | calendarColors: get | calendarReminder: set
gdrive; camel; google; Google Drive | driveFile: get list create copy update delete export search download |
  drivePermission: create list delete | driveComment: create list reply resolve | driveRevision: list
  restore | driveTrash: empty | sharedDrive: create list hide | driveFolder: create
gmail; snake; google; Gmail | gmail_message: send list get trash untrash search modify | gmail_draft: create
  send update delete | gmail_label: create list delete apply | gmail_thread: get list trash | gmail_filter:
  create list delete | gmail_attachment: get | gmail_vacation_responder: set get | gmail_signature: update |
  gmail_forwarding_address: create delete
sheets; snake; google; Google Sheets | spreadsheet: create get | spreadsheet_values: get append update clear
  | worksheet: add delete duplicate rename | conditional_format: add | chart: add delete | pivot_table:
  create | cells: merge format find_and_replace | column: insert delete resize | named_range: create
salesforce; camel; long; Salesforce | record: create update delete upsert get | soqlQuery: run | sosl:
  search | salesforceLead: convert create assign | salesforceOpportunity: create update close |
  salesforceAccount: create merge | salesforceContact: create | salesforceCase: create escalate close |
  salesforceTask: create | salesforceReport: run list | objectMetadata: describe list | salesforceField:
  create | salesforceUser: list deactivate | bulkJob: create get abort | apexCode: execute | debugLog: get |
  approvalRequest: submit approve
shopify; camel; brief; a Shopify store | product: create update delete get list publish | productVariant:
  create update delete | order: get list cancel close update | orderNote: add | draftOrder: create complete
  | fulfillment: create cancel | fulfillmentTracking: update | refund: create calculate | customer: create
  update list search | customerAddress: add | inventoryItem: adjust get transfer | inventoryLevel: list |
  collection: create list addTo | discountCode: create deactivate list | giftCard: create disable |
  metafield: set get | abandonedCheckout: list | storefrontTheme: list publish | shopLocation: list |
  shopWebhook: subscribe list
postgres; snake; brief; a PostgreSQL database | sql: execute explain | read_only_query: execute | schemas:
  list | tables: list | table: describe create drop truncate | index: create drop recommend | slow_queries:
  get | database_health: analyze | active_connections: list | connection: terminate | table_size: get |
  view: create refresh | extension: install list | role: create grant | vacuum: run | locks: list |
  migration: apply revert
filesystem; snake; long; the file system | file: read write edit delete copy move | multiple_files: read |
  directory: create list delete | directory_tree: get | file_info: get | files: search compress |
  allowed_directories: list | file_permissions: change | archive: extract | disk_usage: get | file_content:
  search | file_changes: watch | symlink: create | head_of_file: read
browser; browser; brief; the browser | page: navigate reload go_back go_forward close screenshot snapshot
  save_as_pdf resize scroll | element: click hover drag type_into select_option check wait_for | file:
  upload | key: press | console_messages: read | network_requests: list | javascript: evaluate | tab: new
  close list switch | dialog: accept dismiss | cookies: get set clear | form: fill submit | text: extract |
  html: get | geolocation: set | user_agent: set | network_request: intercept
linear; camel; none; Linear | linearIssue: create get list update | linearComment: create list |
  linearProject: create get list update | linearTeam: get list | linearCycle: list | linearLabel: create
  list | linearUser: get list | linearDocument: get list search | linearIssueStatus: get list |
  linearMilestone: create
asana; kebab; brief; Asana | asana-task: create get update delete search duplicate | asana-subtask: create |
  asana-task-dependency: add remove | asana-project: create get list | asana-project-status: create get |
  asana-section: create list | asana-tag: add list | asana-story: create list | asana-follower: add |
  asana-portfolio: list | asana-goal: create get | asana-workspace: list
hubspot; kebab; long; HubSpot | hubspot-contact: create update get search merge | hubspot-company: create
  get search | hubspot-deal: create update list | hubspot-association: create list | hubspot-engagement:
  create get | hubspot-property: create list | hubspot-list: create addTo | hubspot-ticket: create update |
  hubspot-workflow: get list | hubspot-schema: list | hubspot-marketing-email: create send clone |
  hubspot-form-submission: get
zendesk; snake; brief; Zendesk | ticket: create get update list merge | ticket_comment: create list |
  ticket_tags: add | organization: get search | help_center_article: search create translate | user_ticket:
  list | view: list execute | sla_policy: list | satisfaction_score: list | agent_group: list assign |
  trigger: create disable
sentry; snake; long; Sentry | sentry_issue: get search resolve assign | sentry_event: search |
  sentry_project: create list | sentry_release: find | sentry_dsn: create find | sentry_trace: get |
  sentry_team: create find | sentry_organization: find | root_cause: analyze | sentry_attachment: get |
  sentry_replay: get
datadog; kebab; brief; Datadog | logs: search aggregate | metrics: query list submit | monitor: create list
  get mute delete | dashboard: list get create clone | incident: list get create | trace: list get | host:
  list mute | downtime: schedule cancel | synthetic-test: create trigger | slo: create list | rum-events:
  list | service-dependencies: get
pagerduty; snake; brief; PagerDuty | incident: create acknowledge resolve snooze reassign merge |
  incident_note: add | oncall: list | escalation_policy: list create | schedule: list get |
  schedule_override: create | service: list update | alert_grouping: set | status_update: post | responder:
  request
cloudflare; snake; brief; Cloudflare | dns_record: create list update delete | zone: list create | cache:
  purge | worker: deploy list delete | kv_value: get put delete | kv_namespace: create list | r2_bucket:
  create list delete | d1_database: create query | firewall_rule: create list | ssl_certificate: upload list
  | page_rule: create | tunnel: create list | analytics: get | bot_protection: enable
docker; camel; brief; Docker | container: create run start stop restart remove list inspect exec |
  containerLogs: fetch | containerStats: get | image: build pull push tag list remove prune | volume: create
  list remove | network: create connect list remove | compose: up down | registry: login
redis; snake; none; Redis | redis_key: set get delete expire scan rename | redis_hash: hset hget hgetall |
  redis_list: lpush rpush lrange lpop | redis_set: sadd srem smembers | redis_sorted_set: zadd zrange |
  redis_stream: xadd xrange | redis_channel: publish subscribe | redis_server: info | redis_vector_index:
  create search
mongodb; kebab; brief; MongoDB | collection: create drop rename list | documents: find insert-many
  update-many delete-many aggregate count | collection-index: create list | collection-schema: infer |
  databases: list | database: drop | database-stats: get | explain-plan: get | cluster: connect create list
  | mongodb-logs: get | atlas-user: create list | ip-access-list: add inspect
figma; snake; brief; Figma | figma_file: get | figma_node: get | figma_comments: get post delete |
  figma_styles: list | figma_components: list | figma_variables: list update | figma_image: export |
  figma_screenshot: take | figma_code: generate | figma_versions: list | figma_team_projects: list
confluence; camel; long; Confluence | confluencePage: create get update delete move |
  confluencePageChildren: get | confluenceComment: add list reply | confluenceLabel: add list |
  confluenceContent: search | confluenceAttachment: upload download | confluenceSpace: list create |
  confluencePageHistory: get | confluencePageVersion: restore | confluenceUser: search
teams; camel; google; Microsoft Teams and Outlook | teamsChat: create list | teamsChatMessage: send list
  reply | teamsChannel: create list delete | teamsChannelMessage: send | teamsMember: add remove |
  onlineMeeting: create get | meetingTranscript: get | outlookMail: send list move flag |
  outlookCalendarEvent: create update cancel accept | outlookContact: create | mailboxRule: create |
  presence: get set | oneDriveFile: upload share | plannerTask: create complete
hass; snake; none; Home Assistant | light: turn_on turn_off set_brightness | climate: set_temperature
  set_mode | cover: open close | lock: lock unlock | media_player: play pause set_volume next_track |
  vacuum: start return_to_dock | entity_state: get list | automation: trigger create toggle | scene:
  activate | shopping_item: add complete | camera: snapshot | history: get
twilio; camel; long; Twilio | sms: send list | whatsappMessage: send | phoneCall: place hangUp list |
  phoneNumber: buy list release lookup | callRecording: get delete | verification: start check | voicemail:
  transcribe | fax: send | messagingService: create
maps; snake; google; Google Maps | address: geocode validate | coordinates: reverse_geocode | places: search
  | place_details: get | distance_matrix: calculate | elevation: get | directions: get | place_photo: get |
  timezone_of_place: get | nearby_places: find | street_view_image: get
youtube; camel; google; YouTube | youtubeVideo: insert list rate delete search | youtubeTranscript: get |
  youtubeComment: insert list moderate | youtubePlaylist: insert list delete | youtubePlaylistItem: insert
  delete | youtubeChannel: get | youtubeCaption: insert download | youtubeSubscription: insert delete list |
  liveBroadcast: insert transition | youtubeThumbnail: set
spotify; snake; none; Spotify | playback: start pause skip seek get_state | queue: add_to get | playlist:
  create add_tracks_to remove_tracks_from list | track: search get save | artist_top_tracks: get | album:
  get save | recently_played: get | volume: set | device: list transfer_to | shuffle: toggle
airtable; snake; brief; Airtable | airtable_records: list search create update delete | airtable_bases: list
  | airtable_tables: list create update | airtable_field: create update | airtable_comment: create
todoist; kebab; brief; Todoist | todo: add complete update delete find reopen | todo-project: add list |
  todo-section: add | todo-comment: add find | todo-label: add
xero; kebab; brief; Xero | invoice: create update list email | contact: create list update | payment: create
  | credit-note: create list | bank-transaction: create list | bank-feed: reconcile | quote: create list |
  purchase-bill: create approve | payroll-employee: list | timesheet: approve create | leave-period: list |
  trial-balance: get | profit-and-loss: get | balance-sheet: get | aged-receivables: get | manual-journal:
  create | tax-rate: list | tracking-category: create | organisation-details: get | item: create list
memory; snake; long; the knowledge graph | entities: create delete | relations: create delete |
  observations: add delete | graph: read | nodes: search open
wordpress; camel; brief; WordPress | blogPost: create update delete list publish | blogPage: create update |
  blogComment: approve delete list spam | blogMedia: upload delete | blogCategory: create list | blogTag:
  create | sitePlugin: activate install update | siteUser: create list | siteSettings: get update |
  siteTheme: activate
terraform; snake; brief; Terraform Cloud | workspace: create list lock | run: create apply discard list |
  plan: get | state_version: get | workspace_variable: set list | provider_docs: search get | module: search
  get | policy_set: list
grafana; snake; long; Grafana | grafana_dashboard: get search update delete | panel_image: render |
  prometheus: query | prometheus_metrics: list | loki_logs: query | loki_label_values: list |
  grafana_alert_rule: list create pause | contact_points: list | grafana_incident: create list |
  oncall_schedule: list | annotation: create list | datasource: list get
weather; snake; brief; a weather service | current_weather: get | weather_forecast: get | weather_alerts:
  get | historical_weather: get | air_quality_index: get | sunrise_and_sunset: get | marine_conditions: get
exchange; snake; brief; market data | stock_quote: get | stock_history: get | company_news: get |
  income_statement: get | earnings_calendar: get | crypto_price: get | exchange_rate: get convert |
  dividends: get | ticker: search | analyst_recommendations: get | option_chain: get
arxiv; snake; long; research papers | papers: search | paper: download read summarize | citations: get |
  author: find | pubmed_articles: search | clinical_trials: find | references: export
websearch; snake; brief; the web | web: search | url: fetch scrape crawl | news: search | images: search |
  site_map: map | structured_data: extract | web_page: summarize | similar_pages: find | search_results:
  rerank
"""
"""Servers: their names, how they name and describe tools, what they are, and what is done to which things."""

_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "brief": {
        "": "{V} {o}.",
        "create": "Create a new {o} in {s}.",
        "get": "Get details of a {o}.",
        "list": "List {o}s in {s}.",
        "search": "Search {s} for {o}s.",
        "delete": "Delete a {o}.",
        "retrieve": "Retrieve a {o} by its ID.",
    },
    "long": {
        "": "{V} {o} in {s}. Requires the identifier, and returns JSON. Rate limits of the API apply.",
        "create": "Creates a new {o} in {s} with the given fields and returns it with its identifier.",
        "get": "Retrieves the details of a single {o} from {s}, such as its status, its owner and its dates.",
        "list": "Returns a paginated list of {o}s from {s}. Use page and limit to get further results.",
        "update": "Modifies an existing {o} in {s}. Fields that are not given stay as they are.",
        "delete": "Permanently removes a {o} from {s}. WARNING: this cannot be undone.",
        "search": "Finds {o}s in {s} that match a query. Supports filters, sorting and pagination.",
    },
    "google": {
        "": "{V}s a {o} in {s}.",
        "insert": "Creates a {o} in {s}.",
        "patch": "Updates a {o}. This method supports patch semantics.",
        "list": "Returns the {o}s of the user in {s}.",
        "get": "Returns a {o} of {s}.",
        "delete": "Deletes a {o}.",
    },
    "aws": {
        "": "{V}s the specified {o}.",
        "describe": "Describes one or more of your {o}s.",
        "put": "Creates or replaces a {o}.",
        "list": "Returns information about the {o}s of the account.",
    },
}

_PARAMETERS = {
    "create": {"title": "The title.", "body": "The content, in Markdown.", "labels": "Labels to set."},
    "list": {"page": "The page number.", "limit": "Most results per page.", "state": "open, closed or all"},
    "search": {"query": "The search terms.", "limit": "Most results."},
    "send": {"to": "The recipients.", "subject": "The subject line.", "body": "The text of the message."},
    "update": {"id": "The ID.", "fields": "The fields to change."},
}


def _spaced(text: str) -> str:
    """Return an identifier as words."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in text)
    return words.replace("_", " ").replace("-", " ").strip()


def _camel(text: str) -> str:
    return text[:1].upper() + text[1:]


def _name(style: str, server: str, verb: str, thing: str) -> str:
    by_style = {
        "snake": f"{verb}_{thing}",
        "kebab": f"{verb}-{thing}",
        "camel": f"{verb}{_camel(thing)}",
        "dotted": f"{server}.{thing}.{verb}",
        "kubectl": f"kubectl_{verb}_{thing}",
        "browser": f"{server}_{verb}_{thing}",
    }
    return by_style[style]


def _rows(*, described: bool) -> Iterator[tuple[str, SearchedTool]]:
    """Yield each tool with its server, with the name that the server gives it."""
    for line in _SERVERS.strip().replace("\n  ", " ").splitlines():
        head, *things = line.split(" | ")
        server, style, length, about = head.split("; ")
        for each in things:
            thing, _, verbs = each.partition(": ")
            for verb in verbs.split():
                texts = _DESCRIPTIONS[length]
                template = texts.get(verb, texts.get("", ""))
                app = about if described else "it"
                description = template.format(V=_spaced(verb).capitalize(), o=_spaced(thing), s=app)
                yield (
                    server,
                    SearchedTool(
                        name=_name(style, server, verb, thing),
                        description=description,
                        parameters=_schema(verb),
                        origin=server,
                    ),
                )


def _schema(verb: str) -> Mapping[str, Any]:
    about = _PARAMETERS.get(verb, {"id": "The identifier."})
    properties = {name: {"type": "string", "description": text} for name, text in about.items()}
    return {"type": "object", "properties": properties}


@cache
def server_catalogue(*, described: bool = True) -> tuple[SearchedTool, ...]:
    """Return the tools; those of two servers with the same name begin with the name of their server.

    Args:
        described: whether descriptions name the app.
    """
    rows = [*_rows(described=described)]
    names = Counter(tool.name for _, tool in rows)
    return tuple(
        replace(tool, name=f"{server}_{tool.name}") if names[tool.name] > 1 else tool for server, tool in rows
    )


SERVER_QUESTIONS: dict[str, str] = {
    "run a SOSL search in Salesforce": "searchSosl",
    "information about a YouTube channel": "getYoutubeChannel",
    "which IP addresses may access the MongoDB cluster": "inspect-ip-access-list",
    "show GitLab milestones": "list_gitlab_milestone",
    "change a customer's email address": "update_customer",
    "components of a Figma file": "list_figma_components",
    "list support agent groups": "list_agent_group",
    "fetch a Notion page": "retrieve-page",
    "make a new git branch": "create_branch",
    "leave a note on the PagerDuty incident": "add_incident_note",
    "launch a CloudFormation stack": "createCloudformationStack",
    "remove an IAM user": "deleteIamUser",
    "saved payment methods of a customer": "list_payment_method",
    "look up an author of papers": "find_author",
    "add a product": "create_product",
    "fork a GitHub repository": "fork_repository",
    "create calendar event": "insertCalendarEvent",
    "restore an RDS database from a snapshot": "restoreRdsSnapshot",
    "abandoned carts": "listAbandonedCheckout",
    "upgrade a helm chart": "kubectl_upgrade_helm_chart",
    "delete a kubernetes job": "kubectl_delete_job",
    "find Sentry issues": "search_sentry_issue",
    "list gists": "list_gist",
    "change a DNS record": "update_dns_record",
    "list the objects of Salesforce": "listObjectMetadata",
    "submit the form on the page": "browser_submit_form",
    "on-call schedules in Grafana": "list_oncall_schedule",
    "file a bug in GitHub": "create_issue",
    "get Linear project": "getLinearProject",
    "delete a folder": "delete_directory",
    "save text to a file": "write_file",
    "read the first lines of a file": "read_head_of_file",
    "roll a Confluence page back to an older version": "restoreConfluencePageVersion",
    "add or update a Route 53 DNS record": "upsertRoute53Record",
    "convert a Salesforce lead": "convertSalesforceLead",
    "list Asana workspaces": "list-asana-workspace",
    "list GitHub Actions runs": "list_workflow_run",
    "read a value from Cloudflare KV": "get_kv_value",
    "find an organization in Zendesk": "search_organization",
    "merge a PR": "merge_pull_request",
    "log output of a CI job": "get_job_output",
    "find web pages similar to this one": "find_similar_pages",
    "give a customer their money back": "create_refund",
    "connect to a MongoDB cluster": "connect-cluster",
    "list my Twilio phone numbers": "listPhoneNumber",
    "remove a video from YouTube": "deleteYoutubeVideo",
    "create a MongoDB Atlas cluster": "create-cluster",
    "start a Terraform run": "create_run",
    "drop a database table": "drop_table",
    "CPU and memory usage of a docker container": "getContainerStats",
    "set a resource quota for a namespace": "kubectl_set_quota",
    "give back a phone number in Twilio": "releasePhoneNumber",
    "update a HubSpot deal": "update-hubspot-deal",
    "all teams in Linear": "listLinearTeam",
    "read records from Airtable": "list_airtable_records",
    "which folders am I allowed to access": "list_allowed_directories",
    "change some lines of a file": "edit_file",
    "search for files in Slack": "slack.search.files",
    "show the contents of a folder": "list_directory",
    "attach a policy to an IAM role": "attachIamRole",
    "turn off do not disturb in Slack": "slack.dnd.endSnooze",
    "go live with a YouTube broadcast": "transitionLiveBroadcast",
    "remove a collaborator from a repository": "remove_collaborator",
    "get Terraform provider documentation": "get_provider_docs",
    "find and replace in a spreadsheet": "find_and_replace_cells",
    "list R2 buckets": "list_r2_bucket",
    "new GitLab project": "create_gitlab_project",
    "intercept network requests": "browser_intercept_network_request",
    "list coupons": "list_coupon",
    "respond to a dispute with evidence": "update_dispute",
    "query a Notion database": "query-database",
    "push a docker image to the registry": "pushImage",
    "create security group": "createSecurityGroup",
    "list KV namespaces": "list_kv_namespace",
    "launch an EC2 instance": "runEc2Instance",
    "scrape a website": "scrape_url",
    "restaurants nearby": "find_nearby_places",
    "go forward in browser history": "browser_go_forward_page",
    "list orders in Shopify": "listOrder",
    "update variables in Figma": "update_figma_variables",
    "remove an EC2 snapshot": "deleteEc2Snapshot",
    "write a help center article": "create_help_center_article",
    "store a secret in AWS Secrets Manager": "putSecretValue",
    "list Linear projects": "listLinearProject",
    "create a sprint in Jira": "create_jira_sprint",
    "add a size variant to a product": "createProductVariant",
    "tables of an Airtable base": "list_airtable_tables",
    "rename Slack channel": "slack.conversations.rename",
    "switch the WordPress theme": "activateSiteTheme",
    "associate a HubSpot contact with a company": "create-hubspot-association",
    "all customers of the shop": "listCustomer",
    "users of our Salesforce org": "listSalesforceUser",
    "delete an image from ECR": "deleteEcrImage",
    "reviews of a pull request": "list_pull_request_review",
    "delete Airtable records": "delete_airtable_records",
    "get order details": "getOrder",
    "read a metafield": "getMetafield",
    "set a goal in Asana": "create-asana-goal",
    "create a milestone in Linear": "createLinearMilestone",
    "remove a dependency between Asana tasks": "remove-asana-task-dependency",
    "top entries of a Redis sorted set": "zrange_redis_sorted_set",
    "what address is at these coordinates": "reverse_geocode_coordinates",
    "remove a video from a playlist": "deleteYoutubePlaylistItem",
    "new deal in HubSpot": "create-hubspot-deal",
    "get an inventory item": "getInventoryItem",
    "clear the CDN cache": "purge_cache",
    "who cites this paper": "get_citations",
    "create a database role": "create_role",
    "product details": "getProduct",
    "create a kubernetes namespace": "kubectl_create_namespaces",
}
"""The ranking and its synonyms were made without these, and none may be added for one of them."""
