/* numbers.c - numbers as people read them: as many digits as mean something, units that fit the
 * size
 *
 * Limits lie half a last digit below the power of ten, so that 9.9996 becomes 10.0 and not 10.000.
 * */
#include <locale.h>
#include <math.h>

#include "report/parts.h"

static struct shown shown(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* In the C locale, like everything that this library writes: the same values give the same bytes
 * anywhere. */
static struct shown shown(const char *format, ...)
{
    struct shown s = { "" };
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = uselocale(plain);
    va_list args;

    va_start(args, format);
    vsnprintf(s.text, sizeof s.text, format, args);
    va_end(args);
    uselocale(before);
    freelocale(plain);
    return s;
}

/* Three digits of a number below 1000. */
static int three_digits(double value)
{
    return value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
}

struct shown show_ppl(double value)
{
    if (isinf(value) && value > 0)
        return shown("∞");
    if (!isfinite(value))
        return shown(NO_VALUE);
    if (fabs(value) < 9.9995)
        return shown("%.3f", value);
    if (fabs(value) < 99.95)
        return shown("%.1f", value);
    if (fabs(value) < 99999.5)
        return shown("%.0f", value);
    return shown("%.1e", value);
}

struct shown show_real(double value, int decimals)
{
    if (!isfinite(value))
        return shown(NO_VALUE);
    if (fabs(value) < 1000)
        return shown("%.*f", decimals, value);
    return show_ppl(value);
}

struct shown show_count(double value)
{
    static const char *const units[] = { "K", "M", "G", "T" };
    int unit = 0;

    if (!isfinite(value) || value < 0)
        return shown(NO_VALUE);
    if (value < 9999.5)
        return shown("%.0f", value);
    for (value /= 1000; value >= 999.5 && unit < 3; unit++)
        value /= 1000;
    if (value >= 99999.5)
        return shown("%.1e", value * 1e12);
    return shown("%.*f%s", three_digits(value), value, units[unit]);
}

struct shown show_bytes(double value)
{
    static const char *const units[] = { " KiB", " MiB", " GiB", " TiB" };
    int unit = 0;

    if (!isfinite(value) || value <= 0)
        return shown(NO_VALUE);
    for (value /= 1024; value >= 1023.5 && unit < 3; unit++)
        value /= 1024;
    if (value >= 99999.5)
        return shown("%.1e", value * 0x1p40);
    return shown("%.*f%s", three_digits(value), value, units[unit]);
}

struct shown show_share(double value)
{
    if (!isfinite(value))
        return shown(NO_VALUE);
    return shown(value > 0 && value < 0.00995 ? "%.1f%%" : "%.0f%%", 100 * value);
}

/* A tick is a round number: thousands and millions are shortened where nothing is lost. */
struct shown show_tick(double value, double step)
{
    double wanted =
        value != 0 && step > 0 ? floor(log10(fabs(value))) - floor(log10(step) + 1e-9) + 1 : 0;
    int digits = (int)fmin(fmax(wanted, 4), 15);

    if (!isfinite(value))
        return shown(NO_VALUE);
    if (fabs(value) >= 1e6 && fabs(value) < 1e12 && fmod(value, 1e5) == 0)
        return shown("%.7gM", value / 1e6);
    if (fabs(value) >= 1e4 && fabs(value) < 1e6 && fmod(value, 1e3) == 0)
        return shown("%.3gK", value / 1e3);
    if (fabs(value) < 1e8 && value == floor(value))
        return shown("%.0f", value + 0.0); /* no "-0" */
    return shown("%.*g", digits, value);
}
