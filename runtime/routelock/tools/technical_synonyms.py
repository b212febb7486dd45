"""Words for what software and its APIs do, for the search of tools by `routelock.tools.ranking`.

They are written like those of `routelock.tools.synonyms`.
"""

from __future__ import annotations

__all__ = ["TECHNICAL_SYNONYMS"]


TECHNICAL_SYNONYMS = """
repository = repo codebase project code
pull_request merge_request = pr mr code_changes code_review patch propose changes review
merge = land
branch = fork line
commit = change
release version = new_version ship tag
version revision history = earlier previous older old changes
artifact = build_output output binary result
workflow pipeline job action = build automation ci
pipeline build job = ci run
runner agent = machine worker
build = compile
variable environment = setting config
feature_flag flag toggle = switch feature turn_on turn_off
experiment ab_test = test
server instance virtual_machine machine vm host = computer box cloud
container pod = docker
deployment = app service
cluster = kubernetes
log logs log_query = output print history happened entries
database db = postgres mysql sql data
query sql select = question statement
explain = plan slow why
table = rows
index = slow faster
disk volume storage = drive space
bucket storage = s3
object file = blob
cache cdn
load_balancer = traffic
dns_record dns_zone dns domain = nameserver domain_name point
certificate ssl tls = https cert expire
firewall_rule security_group firewall = port block ip
api_key token key = credential access
password credential = login forgot
mfa_device mfa = two_factor authenticator 2fa
session = logged_in login
permission role access = rights allowed
webhook = callback
send post publish message notify = write tell
send put push = enqueue
run execute invoke call trigger perform evaluate exec = start use launch
start run launch trigger invoke execute = go
stop end terminate kill abort cancel shutdown interrupt = halt
append add insert = attach
attach add associate link connect bind = join tie hook_up
detach remove unlink disconnect unbind disassociate = take_away
link relation association relate associate connection = connect tie
assign reassign transfer = hand_over
watch observe subscribe monitor = changes
subscription subscribe = unsubscribe
cancel delete remove = unsubscribe unfollow
validate verify lint check = syntax valid correct
upload put attach import send
download get export = fetch save
apply deploy = roll_out
clear purge flush empty truncate reset wipe invalidate = delete
screenshot capture snapshot = picture photo image
navigate goto visit = open go url
type fill enter input = write
click press tap = push hit
render draw generate plot = create make
preview = look
list members users participants = who
reply respond comment note message = answer
comment note story discussion thread remark annotation feedback = reply
message post = dm text
conversation channel chat room = group
share permission access acl = who_can who_has_access
acl access_control permission
slo = service_level_objective
sla = service_level_agreement service_level
kv key_value
pr pull_request
mr merge_request
ci pipeline workflow = continuous_integration build
cd deployment = continuous_delivery
repo repository
env environment
config configuration setting settings preference option = set_up
org organization organisation company
dir directory folder
doc document
img image
msg message
auth authentication authorization login
admin administrator
perm permission
spec specification
app application
k8s kubernetes
postgres postgresql
js javascript
md markdown
yaml yml
pptx powerpoint presentation slide deck ppt
xlsx excel spreadsheet workbook worksheet
docx word document
html web_page webpage page site = website homepage
url link web_page website = site address
schema structure field column describe = columns fields
column field property attribute
record row entry item object document
parameter argument option
variable var
metadata info detail attribute property = size modified information
log logs output console trace = printed messages
job task run execution
job cronjob cron = scheduled recurring
error exception issue bug crash failure
stacktrace traceback trace = error
trace span = request latency slow
alert alarm rule notification = warn
downtime maintenance = mute silence
quota limit = maximum restrict
budget = spending limit cost
cost usage billing = spend bill money
role policy permission
token key credential secret password
tag label category topic keyword
diff changes change compare = what_changed difference modified
blame = who_wrote author
commit = changes
history changelog revision version = changed past earlier
review approval = feedback check
approval approve = approved
reviewer = review
assignee assign = responsible
watcher follower = watch
milestone sprint
backlog = todo
branch ref
fork clone copy
star favorite = bookmark like
bookmark = save favorite
gist snippet = code
engagement activity = call meeting email note interaction
cart checkout basket = abandoned
fulfillment shipment shipping delivery = ship send
tracking track = shipment number
variant sku option = size color
theme template design style appearance layout = look
post article page blog entry
plugin extension addon app integration
shape = rectangle circle square arrow
chart graph plot diagram visualization
cover blind garage shutter curtain shade = garage_door
climate thermostat hvac heating = air_conditioning temperature warmer cooler
media_player player speaker tv = music television
playback player = music play song
scene = mood
entity device sensor = state
switch toggle = turn_on turn_off
datasource data_source
panel chart widget graph
embedding vector similarity = semantic
queue topic stream = messages
lambda function serverless = code
instance server host machine node
image ami
function = method
ingress route routing = expose traffic
service = app
release rollout
tunnel vpn = expose
zone domain = site
whois = owner domain registered
sitemap site_map = pages website
scrape crawl extract fetch
cookie = session
dialog popup alert = modal
tab window
viewport window resize = size
transcript caption subtitle = spoken words text
thumbnail cover = preview image
paper article study publication = research
citation reference cite = cited cites
author = wrote writer
trial study = clinical
ticker symbol stock = company
fundamental ratio valuation = price_earnings pe eps
cashflow cash_flow
income_statement financial_statement financials earnings = revenue profit net_income
balance_sheet financial_statement = assets liabilities
option option_chain = call put derivative
earnings = quarterly results
recommendation rating analyst
elevation altitude = height high
geocode coordinate = latitude longitude lat lng address position
reverse_geocode geocode = address coordinates
nearby near = around close
place poi = restaurant shop cafe
neighborhood area region district
street_view = look
timezone time = now clock
trending trend popular hot top = ranking
leaderboard ranking rank top = best
match game = played
champion character hero
problem challenge question
network request = http traffic requests
permalink link = url
presence status = online away
do_not_disturb dnd snooze = quiet notifications
star rating
vacation_responder auto_reply out_of_office = away holiday
forwarding forward
permission restriction access = who may allowed
restriction permission = restrict
authorize allow = open
unauthorized = forbidden
rotate renew = new
expire ttl expiration
protect lock
migrate migration = upgrade
transaction = commit
replica replicate = copy
restart reboot reload
rollback undo revert restore
suspend pause disable
resume restart start
override exception = swap cover
escalation escalate
responder = help
status_update update announcement = inform
postmortem = review
note memo
notebook note
knowledge graph memory
entity node = thing
observation fact
relation edge link
block section content paragraph
paragraph heading text
append = end
footnote endnote
header heading title
hyperlink link
bullet list
page_break break
unmerge split
freeze = lock
pivot_table pivot
formula = calculate
workspace project
portfolio project
subtask sub_task child
dependency blocker = blocks blocked depends
parent epic
child children sub subpage = below nested
attachment file
emoji reaction
mention = tag
submission response answer
workflow automation = zap
lifecycle stage
quote estimate proposal
credit_note credit
journal ledger
payroll wage
receivable = owed overdue
trial_balance ledger
dispute chargeback = evidence
charge payment
hold authorization
mandate
link checkout
portal
sms text_message whatsapp
hang_up end = call
caller
fax
phone_number number
verification code otp = one_time
discover enable activate = more
reject unapprove disapprove revoke = withdraw approval
event activity history = recent happened
tempo bpm beat = beats_per_minute speed rhythm
daily today = of_the_day
shape = draw
search find = grep
content text body = inside
list = ls
move rename = mv
copy = cp
directory folder = mkdir
fetch download = curl wget
transcript transcribe = said
state status = switched_on running
symlink = symbolic_link soft_link
stats statistics metrics
abbr abbreviation
acct account
addr address
appt appointment
attr attribute
cal calendar
calc calculate
cfg config
cmd command
conn connection
cred credential
dept department
dest destination
emp employee
gen generate
inv invoice
lib library
mgmt management manage
notif notification
num number
param parameter
pkg package
proj project
qty quantity
ref reference
req request
resp response
src source
sub subscription
txn transaction
val value
ver version
vol volume
temp temperature
"""
"""The meanings of words, one a line."""
