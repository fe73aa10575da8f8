"""One picture: where one arrives late, and when one leaves late."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of the backend)

ORIGINS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
COLORS = {"EWR": "#1f77b4", "JFK": "#d95f02", "LGA": "#1b9e77"}


def draw(per_destination, through_the_day, path):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5.5), layout="constrained")
    busiest = sorted(per_destination, key=lambda row: -row[2])[:20]
    busiest.sort(key=lambda row: row[3])
    left.barh([f"{name} ({code})".strip() for code, name, _, _ in busiest],
              [mean for _, _, _, mean in busiest],
              color=["#c44e52" if row[3] > 0 else "#55a868" for row in busiest])
    left.axvline(0, color="black", linewidth=0.8)
    left.set_xlabel("mean arrival delay, minutes")
    left.set_title("The 20 busiest destinations")
    left.tick_params(axis="y", labelsize=8)
    for origin, means in sorted(through_the_day.items()):
        hours = sorted(means)
        right.plot(hours, [means[hour] for hour in hours],
                   marker="o", markersize=3, label=ORIGINS.get(origin, origin),
                   color=COLORS.get(origin))
    right.set_xticks(range(0, 25, 3), [f"{hour:02d}:00" for hour in range(0, 25, 3)])
    right.set_xlabel("scheduled departure, local time (New York)")
    right.set_ylabel("mean departure delay, minutes")
    right.set_title("Delays add up through the day")
    right.grid(alpha=0.3)
    right.legend(frameon=False)
    figure.suptitle("Flights from New York, 2013")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
