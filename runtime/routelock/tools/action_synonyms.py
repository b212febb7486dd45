"""Words that users have for what tools do, for the search of tools by `routelock.tools.ranking`.

They are written like those of `routelock.tools.synonyms`.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ACTIONS", "ACTION_SYNONYMS"]


ACTION_SYNONYMS = """
create add new make insert generate register post put upsert = start compose draft build write set_up
  prepare produce introduce put_in spin_up record put open log type get book reserve enter fill_in buy
  place begin
create generate = draw paint design invent
create add write = upload store save
create send = ask write
delete remove erase destroy drop purge trash rm del unset = get_rid throw_away throw_out trash bin discard
  wipe clear take_off take_down tear_down kick_out kick clean_up eliminate scrap cut_out take_out strip
  dispose no_longer unwanted clear_out
update edit modify change set patch put upsert replace alter = adjust alter revise amend correct fix
  rewrite move replace tweak switch touch_up reschedule rename put different make
get read fetch retrieve view show describe check info detail inspect load lookup = see look_at display tell
  give know open access inspect pull_up bring_up how_is where look_up info information detail result
list list_all browse view enumerate index all = show every overview see who how_many
search find query lookup scan discover = look_for look_up look locate hunt seek discover where get browse
export download = save extract dump pull get_out spreadsheet csv excel backup pdf
import upload = load bring_in ingest put attach
archive = put_away store file_away shelve old hide
restore recover undelete unarchive = bring_back get_back undo recycle
share invite = give access send let_see pass show_to link public
grant allow = give access permission permit
revoke = take_back take_away withdraw remove access invalidate disable
duplicate copy clone = replicate again same starting_point
rename = call title name retitle
move transfer = relocate shift put drag
merge combine join = together unite put_together bring_together consolidate duplicate
split divide separate = break_up apart
compare diff = difference versus changed contrast best cheapest cheaper
convert transform = turn_into change_into translate how_many make_into become
send email deliver = mail dispatch forward write pass tell fire_off message shoot transmit
forward = pass_on send
reply respond answer = write_back get_back react
cancel void = call_off abort revoke drop undo withdraw stop end no_longer
cancel unsubscribe = quit leave opt_out stop end
stop end terminate pause disable deactivate shutdown = halt kill quit shut_down turn_off switch_off suspend
  switch
start run launch trigger enable activate begin execute = kick_off boot turn_on switch_on fire_up switch play
restart reboot retry rerun = again reset reload try_again relaunch repeat
pause suspend hold snooze = freeze wait postpone later
resume continue unpause = go_on restart reactivate
schedule plan reschedule = later tomorrow arrange set_up organize timing postpone
reschedule update move = postpone put_off delay push_back another_day later change shift
schedule book = meet see visit
approve accept confirm authorize = sign_off ok agree allow green_light yes let_through
reject decline deny refuse = turn_down disapprove no say_no dismiss
assign delegate = give hand hand_over appoint put_on pass responsible
escalate = senior manager urgent supervisor raise higher
close resolve complete finish = done end tick_off check_off mark fixed solved over won
reopen = open_again
acknowledge = seen taken on_it
subscribe follow watch = notify sign_up keep_informed alert
unsubscribe unfollow remove = opt_out leave
notify alert announce remind = tell inform let_know warn ping nudge
mute silence snooze = quiet noisy stop annoying
track trace = where where_is follow locate arrive status
monitor watch = keep_an_eye observe track
validate verify check = correct exist right real sure confirm
test check = try
count = how_many number total
calculate compute estimate = work_out figure_out how_much how_long
estimate quote = how_much price cost
forecast predict = expect tomorrow future
analyze evaluate = study examine assess
summarize summary = sum_up gist short_version key_points digest recap condense brief
translate translation = say_in language french german spanish italian english chinese japanese portuguese
  russian
detect recognize identify = spot
classify categorize tag label = sort kind mark
sort order = arrange organize
filter rule = automatically sort incoming
upgrade = improve better
downgrade = cheaper lower
increase raise grow = more higher bigger
decrease reduce lower = less smaller
resize scale = bigger smaller larger enlarge shrink more capacity grow
scale = replica capacity instances
crop trim cut = clip edges
rotate = turn
compress zip = shrink smaller reduce
extract = get_out pull
lock = secure close shut
unlock = open
freeze block = stolen lost stop
block ban mute = spam abusive harass stop annoying troll
ban kick remove = abusive throw_out
assign grant = give
install deploy = set_up add put
uninstall = remove
deploy release publish = ship roll_out live go_live push launch
publish post = write share put_out public online go_live live announce release
rollback revert = undo go_back previous_version
backup snapshot = copy save
sync synchronize = refresh
refresh reload renew = fresh
rotate renew = replace
renew extend = longer keep prolong expire continue refill more runs_out again
login sign_in log_in = signin authenticate
logout sign_out log_out = signout
reset recover = forgot lost
sign signature esign = autograph electronically
print = paper hard_copy
scan ocr = digitize read
play start = listen put_on hear
skip next = forward
like react favorite star = love heart thumbs_up favourite emoji
comment note reply = remark say leave feedback
vote poll = decide survey opinion
join enter = take_part attend participate
leave exit = quit
enroll register sign_up = join join_in apply
check_in = boarding arrive
clock_in start = timer
buy purchase order = get acquire shop more
sell = get_rid offer
pay settle = money
pay payment
refund reimburse = money_back cash_back pay_back give_back return get_back
charge bill invoice = money
return = give_back send_back bring_back take_back
borrow loan lend = take_out
donate donation = give charity
withdraw = take_out cash
deposit = pay_in
transfer = send wire money move give pay remit
request = ask
submit send file = hand_in turn_in give
download save = get fetch
attach upload = enclosed
reminder remind = chase nudge forget
delete archive update = cancel end terminate stop close finish quit call_off no_longer
album = record lp band
receipt = cost paid spent price
absence = out_of_office away call_in_sick ill
download = offline
set update = turn_on turn_off switch_on switch_off
encrypt protect = secure password secret
shorten = short
generate create random = make
tip gratuity
dim brightness = darker brighter
mark set
pin = top
poll vote survey
invite add = ask bring_in
capture collect = take
ship fulfill = send dispatch deliver
redeem use = spend
dispute chargeback = contest challenge
reconcile match = compare
transcribe = type_up write_down said text dictation
move transfer = somewhere_else elsewhere put_elsewhere carry
grant share permission invite = let allow
receive accept = come_in came_in arrived delivered got
top_up deposit add = load_money
convert exchange = into worth
subscribe = sign_me_up keep_me_posted
unsubscribe = stop_sending
snooze postpone = later remind_me_later
reply answer respond = get_back_to write_back
forward = pass_along pass_on
draft = start_writing
leave = get_out
mute = shut_up quiet silent
archive close = over old out_of_date done_with
complete close resolve = finished done
reopen = again come_back
assign = should_do take_care responsible
escalate = no_one_answers
cancel = not_come changed_my_mind mistake never_mind
reschedule = another_time other_day
book reserve = save_me get_me
review rate = stars liked
recommend suggest recommendation suggestion = should
compare = faster better which_is
estimate = roughly
summarize = in_short tldr
transcribe = type_out
generate image = paint draw
enhance upscale = sharper
arm alarm = leaving_the_house
disarm alarm = coming_home
unlock = let_in
rollback = broke_production
restart = stuck hangs frozen
scale = too_slow
delete offboard deactivate = person_left who_left
compress resize shrink = too_big too_large
rotate flip = sideways upside_down
delete remove = unsend retract dissolve
cancel abort = scrap
start enable = power_up
stop disable = power_down
create add log record = note_down write_down jot_down
rename = call_something
pay settle = outstanding
offboard suspend = quits resigns resigned
notify trigger page = wake alert
accept confirm = say_yes
reject decline = say_no
send reply = drop_a_line
list get = do_we_have do_i_have are_there
update edit = no_longer_right
restore = want_back
extract get = only_need
open create = set_up
search find = has_anyone
"""
"""The meanings of words, one a line."""

ACTIONS: Mapping[str, str] = {
    "read": """
        get list search view show check find read fetch describe retrieve lookup query browse see display
    """,
    "make": """
        create add new make insert generate register send post book place start put write upload save
        draft submit
    """,
    "change": "update edit modify change set rename move patch",
    "remove": "delete remove cancel close archive drop purge clear revoke terminate destroy trash",
}
"""The kinds of action, and the words that say that a tool does one."""
