"""A catalogue of about a thousand tools, as the apps of a company offer them, and questions of users."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from routelock import Tool

__all__ = ["OTHER_QUESTIONS", "QUESTIONS", "catalogue", "tools_of"]

_SERVICES = """
gmail; an inbox of Gmail | email: send list search delete archive forward | draft: create update send |
  label: create list add remove | attachment: download list
outlook; an Outlook mailbox | message: send list search delete move | rule: create list delete | folder:
  create list rename | signature: get update
slack; a Slack workspace | message: send search delete schedule pin | channel: create list archive
  rename | reminder: create list delete | user: invite list get | reaction: add remove
teams; Microsoft Teams | chat: create list get | message: send search | meeting: create cancel get |
  team: create list archive
discord; a Discord server | message: send delete pin | channel: create delete list | member: ban kick
  list | role: create assign remove
google_calendar; a Google calendar | event: create update delete list search | availability: check |
  calendar: create share list | invitation: accept decline send
calendly; a Calendly account | appointment: book cancel reschedule list | event_type: create update list
  | availability: get update
zoom; Zoom | meeting: create update cancel list | recording: download list delete | webinar: create list
  | participant: list remove
github; a GitHub repository | issue: create close list search comment assign | pull_request: create
  merge review list close | branch: create delete list compare | release: create list | repository:
  create fork list archive | workflow: trigger list cancel
gitlab; a GitLab project | issue: create close list | merge_request: create approve merge | pipeline:
  trigger cancel list retry | snippet: create list
jira; a Jira project | issue: create update search assign transition | sprint: create start close list |
  comment: add list | worklog: add list | epic: create list
linear; a Linear team | issue: create update list archive | cycle: get list | project: create update list
trello; a Trello board | card: create move archive list comment | board: create list close | checklist:
  create complete
asana; an Asana workspace | task: create update complete delete list assign | project: create list
  duplicate | section: create list
todoist; a Todoist account | task: create complete delete list reschedule | project: create list
notion; a Notion workspace | page: create update archive search | database: create query list | comment:
  add list
confluence; a Confluence space | page: create update delete search | space: create list | attachment:
  upload list
google_docs; Google Docs | document: create get update export copy | comment: add resolve list
google_sheets; a Google spreadsheet | spreadsheet: create get copy | row: add update delete list | cell:
  get update clear | chart: create delete
google_drive; Google Drive | file: upload download delete move copy search share | folder: create list
  delete | permission: grant revoke list
dropbox; a Dropbox account | file: upload download delete move restore | folder: create list share |
  shared_link: create revoke
s3; an Amazon S3 account | bucket: create delete list | object: upload download delete copy list |
  lifecycle_policy: get update
ec2; Amazon EC2 | instance: create start stop restart terminate list | snapshot: create delete list
  restore | security_group: create update list | volume: attach detach resize
kubernetes; a Kubernetes cluster | pod: list get delete restart | deployment: create scale rollback list
  | node: list drain | log: get | secret: create delete list
docker; a Docker host | container: start stop restart list remove | image: build pull push list remove |
  network: create list remove
cloudflare; a Cloudflare zone | dns_record: create update delete list | cache: purge | firewall_rule:
  create delete list | certificate: get renew
postgres; a PostgreSQL database | query: run explain | table: create drop list describe | index: create
  drop list | backup: create restore list
redis; a Redis server | key: get set delete list expire | cache: flush
datadog; Datadog | monitor: create mute delete list | dashboard: create list | metric: query submit |
  incident: create resolve list
pagerduty; PagerDuty | incident: create acknowledge resolve escalate list | on_call_schedule: get update
  | service: create list
sentry; Sentry | issue: list resolve ignore assign | release: create list | project: create list
stripe; a Stripe account | payment: create capture cancel list | refund: create list | customer: create
  update delete list search | invoice: create send void list pay | subscription: create update cancel
  list | coupon: create delete list | dispute: list respond | payout: create list
paypal; a PayPal account | payment: send request list | refund: create | dispute: list accept | invoice:
  create send remind
quickbooks; QuickBooks | invoice: create send void list | bill: create pay list | expense: create list
  categorize | vendor: create update list | tax_report: get | profit_and_loss_report: get
xero; Xero | invoice: create approve email list | bank_transaction: create reconcile list | contact:
  create update archive list | payroll: run get
bank; a bank account | balance: get | transfer: create schedule cancel list | card: freeze unfreeze
  order report_lost | statement: download list | direct_debit: create cancel list | loan: apply_for get
crypto_wallet; a cryptocurrency wallet | coin: buy sell send receive | price: get list | transaction: list
stock_broker; a brokerage account | order: place cancel list | stock_quote: get | portfolio: get |
  watchlist: create add remove
salesforce; Salesforce | lead: create update convert list assign | opportunity: create update close list
  | account: create update merge search | report: run list | campaign: create list
hubspot; HubSpot | contact: create update delete search | deal: create update move list |
  email_campaign: create send list | form: create list | ticket: create close list
mailchimp; Mailchimp | campaign: create send schedule list | subscriber: add remove list update |
  audience: create list segment | template: create list
zendesk; Zendesk | ticket: create update close assign merge search escalate | macro: apply list |
  help_article: create publish search | satisfaction_rating: list get
intercom; Intercom | conversation: reply assign close list snooze | article: create publish list |
  contact: tag create list
shopify; a Shopify store | product: create update delete list publish | order: get cancel refund list
  fulfill | discount_code: create delete list | inventory_level: get adjust | customer: create search |
  collection: create list
amazon_store; an Amazon seller account | listing: create update close list | order: get list ship cancel
  | return: approve list | review: list reply
shipping; a parcel service | shipment: create track cancel list | label: print void | pickup: schedule
  cancel | rate: get compare | address: validate
warehouse; a warehouse | stock_level: get adjust | item: receive move count list | purchase_order:
  create approve receive list | supplier: create list rate
restaurant; restaurants in the city | table: reserve cancel find | menu: get | review: write list |
  waitlist: join leave
food_delivery; a food delivery app | order: place cancel track list | restaurant: search get | driver:
  contact tip
flights; airlines | flight: search book cancel change | check_in: do | seat: select upgrade |
  flight_status: get | baggage: add track
hotels; hotels | room: search book cancel change | review: list write | late_checkout: request |
  loyalty_points: get redeem
car_rental; a car rental company | car: search reserve cancel extend return | insurance: add remove
rides; a taxi app | ride: request cancel track list | driver: rate tip | fare: estimate split
trains; the railways | train_ticket: search book refund | timetable: get | delay: report get
maps; a map service | route: get compare share | place: search save list | traffic: get | travel_time:
  estimate | parking_spot: find reserve
weather; a weather service | forecast: get | current_conditions: get | severe_weather_alert: list
  subscribe | air_quality: get | pollen_count: get
smart_home; a smart home | light: turn_on turn_off dim | thermostat: get set schedule | door_lock: lock
  unlock check | camera: view record list | blind: open close | vacuum_robot: start stop schedule |
  alarm: arm disarm
spotify; Spotify | song: play pause skip search like | playlist: create add remove list share | podcast:
  play follow list | volume: set
youtube; YouTube | video: upload delete search like list | comment: add delete list reply | playlist:
  create add list | channel_statistics: get | subtitle: upload download
twitter; X, formerly Twitter | tweet: post delete like search schedule | follower: list remove |
  direct_message: send list | trend: list
linkedin; LinkedIn | post: create delete schedule | connection: request accept remove list | job: post
  search apply_for | profile: get update
instagram; Instagram | photo: post delete tag | story: post list | follower: list block | insights: get
wordpress; a WordPress site | post: create publish update delete list | page: create update | comment:
  approve delete reply | plugin: install update disable list | media: upload list
images; an image editor | image: resize crop rotate convert generate compress caption | background:
  remove replace | watermark: add
documents; PDF and text documents | pdf: merge split compress convert sign encrypt | text: extract
  translate summarize proofread | signature_request: send cancel track
audio; an audio service | speech: transcribe generate | audio_file: convert trim merge | language: detect
translate; a translation service | text: translate | document: translate | language: detect list |
  glossary: create list
hr; the personnel system | employee: create update offboard list search | time_off_request: create
  approve reject list | payslip: get list | performance_review: create submit list | org_chart: get |
  expense_claim: submit approve list
recruiting; the recruiting system | candidate: create reject advance list search | interview: schedule
  cancel list | job_opening: create publish close list | offer_letter: send withdraw
timesheets; the time tracking system | timer: start stop | time_entry: create update delete list |
  timesheet: submit approve list
learning; the learning platform | course: create enroll complete list search | quiz: create grade take |
  certificate: issue download | student: add remove list
library; a public library | book: search borrow return renew reserve | fine: get pay | reading_list:
  create list
clinic; a medical practice | appointment: book cancel reschedule list | prescription: create renew list
  | lab_result: get list | patient: register update search | referral: create | vaccination: record list
fitness; a fitness tracker | workout: start log list | weight: log get | sleep: log get | step_count:
  get | heart_rate: get | calorie_goal: set get
recipes; a recipe collection | recipe: search create save rate | shopping_list: create add clear |
  meal_plan: create get | nutrition_facts: get
real_estate; a real estate portal | property: search list save compare | viewing: schedule cancel |
  rent: estimate pay | lease: create renew terminate sign | maintenance_request: create close list
insurance; an insurance company | policy: get renew cancel compare | claim: file track withdraw list |
  quote: get | beneficiary: add remove
legal; a law office | contract: create review sign list search | matter: open close list | nda: generate
  send
identity; the identity provider | user: create suspend delete list | password: reset change | group:
  create add remove list | mfa_device: register revoke | session: revoke list | api_key: create rotate
  revoke list
feature_flags; a feature flag service | flag: create toggle archive list | experiment: start stop get |
  segment: create list
analytics; web analytics | report: create get schedule | page_views: get | conversion_funnel: get create
  | event: track list | user_segment: create list
survey; a survey tool | survey: create send close list | response: list export delete | question: add remove
utilities; small helpers | currency: convert | unit: convert | qr_code: generate read | password:
  generate | url: shorten expand | timezone: convert | number: generate | hash: calculate
energy; the electricity supplier | meter_reading: submit list | tariff: get change compare | bill: get
  pay list | outage: report track
events; an event agency | event_ticket: book cancel list transfer | venue: search reserve | guest:
  invite remove list
school; a school | absence: report list | homework: list submit | grade: get list | parent_meeting: book
  cancel
"""

_VERBS = {
    "create": "Create a new {o} in {s}.",
    "update": "Update the fields of an existing {o} in {s}.",
    "delete": "Permanently delete a {o} from {s}.",
    "list": "List every {o} in {s}, with paging.",
    "get": "Get the {o} of {s}.",
    "search": "Search {s} for a {o} by text.",
    "send": "Send a {o} through {s}.",
    "add": "Add a {o} in {s}.",
    "remove": "Remove a {o} from {s}.",
    "close": "Close a {o} in {s}.",
    "cancel": "Cancel a {o} in {s}.",
    "archive": "Archive a {o} in {s}.",
}


def _phrase(name: str) -> str:
    return name.replace("_", " ")


def _described(verb: str, thing: str, service: str) -> str:
    text = _VERBS.get(verb, "{v} a {o} in {s}.")
    return text.format(v=_phrase(verb).capitalize(), o=_phrase(thing), s=service)


def _rows() -> Iterator[tuple[str, str]]:
    """Yield the name and the description of each tool."""
    for line in _SERVICES.strip().replace("\n  ", " ").splitlines():
        head, *things = line.split(" | ")
        service, _, about = head.partition("; ")
        for thing in things:
            name, _, verbs = thing.partition(": ")
            for verb in verbs.split():
                yield f"{service}_{verb}_{name}", _described(verb, name, about)


def tools_of(rows: Iterator[tuple[str, str]], **options: Any) -> list[Tool]:
    """Return a tool for each name and description."""
    parameters = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "The id."},
            "fields": {"type": "object", "description": "Further fields, by their names."},
            "limit": {"type": "integer", "description": "How many at most."},
        },
        "required": ["id"],
    }
    return [
        Tool(
            name=name,
            description=about,
            params_json_schema=parameters,
            on_invoke_tool=lambda context, arguments: "done",
            strict=False,
            **options,
        )
        for name, about in rows
    ]


@cache
def catalogue() -> tuple[Tool, ...]:
    """Return the tools, all deferred; about a thousand."""
    return tuple(tools_of(_rows(), deferred=True))


QUESTIONS: dict[str, str] = {
    "write to Anna that I'll be ten minutes late, from my Gmail": "gmail_send_email",
    "find the mail from the landlord in Gmail": "gmail_search_email",
    "throw away this message in Outlook": "outlook_delete_message",
    "who is in the Slack workspace?": "slack_list_user",
    "put a thumbs up on that Slack post": "slack_add_reaction",
    "get rid of an abusive person on Discord for good": "discord_ban_member",
    "am I free on Thursday afternoon?": "google_calendar_check_availability",
    "turn down the invite in my Google calendar": "google_calendar_decline_invitation",
    "move my Calendly booking to another day": "calendly_reschedule_appointment",
    "fetch the video of yesterday's Zoom call": "zoom_download_recording",
    "file a bug on GitHub": "github_create_issue",
    "land my PR": "github_merge_pull_request",
    "rerun the failed CI pipeline on GitLab": "gitlab_retry_pipeline",
    "hand the Jira ticket over to Maria": "jira_assign_issue",
    "log how long I worked on the Jira ticket": "jira_add_worklog",
    "tick off a to-do in Asana": "asana_complete_task",
    "take back a person's access to the Drive folder": "google_drive_revoke_permission",
    "undelete the file I lost in Dropbox": "dropbox_restore_file",
    "spin up a new virtual machine at Amazon": "ec2_create_instance",
    "reboot the EC2 server": "ec2_restart_instance",
    "go back to the previous version of our Kubernetes deployment": "kubernetes_rollback_deployment",
    "point our domain name to another IP in Cloudflare": "cloudflare_update_dns_record",
    "make a backup of Postgres": "postgres_create_backup",
    "why is this SQL so slow, show me the plan": "postgres_explain_query",
    "silence a noisy Datadog alert": "datadog_mute_monitor",
    "who has the pager this week?": "pagerduty_get_on_call_schedule",
    "give a Stripe customer their money back": "stripe_create_refund",
    "stop a customer's recurring plan in Stripe": "stripe_cancel_subscription",
    "answer a chargeback": "stripe_respond_dispute",
    "how much money is left in my bank account?": "bank_get_balance",
    "my wallet was stolen, block the bank card": "bank_freeze_card",
    "what's Apple trading at?": "stock_broker_get_stock_quote",
    "turn this Salesforce prospect into a customer": "salesforce_convert_lead",
    "someone wants off our Mailchimp newsletter": "mailchimp_remove_subscriber",
    "join two duplicate Zendesk cases": "zendesk_merge_ticket",
    "make a promo code for the Shopify shop": "shopify_create_discount_code",
    "where is my parcel?": "shipping_track_shipment",
    "how many pieces are on hand in the warehouse?": "warehouse_get_stock_level",
    "dinner for four on Friday at eight": "restaurant_reserve_table",
    "is my plane on time?": "flights_get_flight_status",
    "sit by the window on the flight": "flights_select_seat",
    "find a place to stay in Lisbon": "hotels_search_room",
    "call me a cab": "rides_request_ride",
    "how long does it take to drive to the airport?": "maps_estimate_travel_time",
    "do I need an umbrella tomorrow?": "weather_get_forecast",
    "it's cold in here, make the living room warmer": "smart_home_set_thermostat",
    "did I lock the front door?": "smart_home_check_door_lock",
    "make the music louder": "spotify_set_volume",
    "unfollow me, spammer: get rid of a follower on X": "twitter_remove_follower",
    "cut out the background of this photo": "images_remove_background",
    "put two PDFs together": "documents_merge_pdf",
    "type up what is said in this recording": "audio_transcribe_speech",
    "I want a day off next week": "hr_create_time_off_request",
    "see my last paycheck": "hr_get_payslip",
    "set up a talk with an applicant": "recruiting_schedule_interview",
    "keep my library loan for longer": "library_renew_book",
    "I need more of my pills": "clinic_renew_prescription",
    "how many calories are in this dish?": "recipes_get_nutrition_facts",
    "I forgot my password": "identity_reset_password",
    "how many dollars is 50 euros?": "utilities_convert_currency",
}
"""The synonyms were made with these questions at hand."""

OTHER_QUESTIONS: dict[str, str] = {
    "shoot a quick email to the accountant via gmail": "gmail_send_email",
    "post hello to the general channel on slack": "slack_send_message",
    "set up a new repo on github": "github_create_repository",
    "what branches differ on github": "github_compare_branch",
    "kill the docker container": "docker_stop_container",
    "wipe the cloudflare cache": "cloudflare_purge_cache",
    "bump the kubernetes deployment to five replicas": "kubernetes_scale_deployment",
    "leave a remark on the jira ticket": "jira_add_comment",
    "begin the next sprint": "jira_start_sprint",
    "mark the todoist task as done": "todoist_complete_task",
    "make a copy of the google doc": "google_docs_copy_document",
    "give Bob access to a drive file": "google_drive_share_file",
    "put the report on dropbox": "dropbox_upload_file",
    "the incident is over, tell pagerduty": "pagerduty_resolve_incident",
    "bill a customer with stripe": "stripe_create_invoice",
    "wire 100 euros to my sister": "bank_create_transfer",
    "I lost my debit card": "bank_report_lost_card",
    "what's bitcoin worth": "crypto_wallet_get_price",
    "buy 10 shares of Tesla": "stock_broker_place_order",
    "put off the zoom meeting": "zoom_update_meeting",
    "switch off the light in the kitchen": "smart_home_turn_off_light",
    "next song please": "spotify_skip_song",
    "I want to take two weeks off": "hr_create_time_off_request",
    "will it rain on Sunday": "weather_get_forecast",
    "get me a taxi to the station": "rides_request_ride",
    "cancel my hotel booking": "hotels_cancel_room",
    "turn this doc into a pdf": "documents_convert_pdf",
    "make the picture smaller": "images_resize_image",
    "turn the alarm on": "smart_home_arm_alarm",
    "switch the alarm off, it's me": "smart_home_disarm_alarm",
    "take Anna off the mailing list": "mailchimp_remove_subscriber",
    "I need a loan for a house": "bank_apply_for_loan",
    "write down what they say in this file": "audio_transcribe_speech",
    "is my train late": "trains_get_delay",
    "can I keep the hotel room until two": "hotels_request_late_checkout",
    "I spent money on a trip and want it back": "hr_submit_expense_claim",
    "let me see who is at the door": "smart_home_view_camera",
    "fix the typos in my essay": "documents_proofread_text",
    "I'm done with the groceries list, empty it": "recipes_clear_shopping_list",
    "get rid of the backdrop": "images_remove_background",
}
"""The synonyms were made without these, and none may be added for one of them."""
