/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parts of the macro PERFTRACE(): macros that expand the fields one by one, and the definition of a
 * site (struct perftrace_site) for each marker. Names that end in _ are reserved for this header.
 */
#ifndef _PERFTRACE_MACRO_H
#define _PERFTRACE_MACRO_H

#define PERFTRACE_INLINE_ static inline __attribute__((always_inline, unused))

/*
 * Defines a function that converts an argument of the C type `type` to the
 * value of a field.
 */
#define PERFTRACE_TYPE_(name, type, as) \
	PERFTRACE_INLINE_ struct perftrace_value perftrace_##name##_(type value) \
	{ \
		struct perftrace_value is = { (as)value, 0 }; \
\
		return is; \
	}

PERFTRACE_TYPE_(u8, uint8_t, uint8_t)
PERFTRACE_TYPE_(u16, uint16_t, uint16_t)
PERFTRACE_TYPE_(u32, uint32_t, uint32_t)
PERFTRACE_TYPE_(u64, uint64_t, uint64_t)
PERFTRACE_TYPE_(s8, int8_t, uint8_t)
PERFTRACE_TYPE_(s16, int16_t, uint16_t)
PERFTRACE_TYPE_(s32, int32_t, uint32_t)
PERFTRACE_TYPE_(s64, int64_t, uint64_t)
PERFTRACE_TYPE_(x8, uint8_t, uint8_t)
PERFTRACE_TYPE_(x16, uint16_t, uint16_t)
PERFTRACE_TYPE_(x32, uint32_t, uint32_t)
PERFTRACE_TYPE_(x64, uint64_t, uint64_t)

PERFTRACE_INLINE_ struct perftrace_value perftrace_f32_(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return perftrace_u32_(bits);
}

PERFTRACE_INLINE_ struct perftrace_value perftrace_f64_(double value)
{
	uint64_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return perftrace_u64_(bits);
}

/* Converts a NUL-terminated text to the value of a field. */
PERFTRACE_INLINE_ struct perftrace_value perftrace_str_(const char *value)
{
	struct perftrace_value is = { (uint64_t)(uintptr_t)value, ~(uint64_t)0 };

	return is;
}

#define PERFTRACE_KIND_u8	1
#define PERFTRACE_KIND_s8	1
#define PERFTRACE_KIND_x8	1
#define PERFTRACE_KIND_u16	2
#define PERFTRACE_KIND_s16	2
#define PERFTRACE_KIND_x16	2
#define PERFTRACE_KIND_u32	3
#define PERFTRACE_KIND_s32	3
#define PERFTRACE_KIND_x32	3
#define PERFTRACE_KIND_f32	3
#define PERFTRACE_KIND_u64	4
#define PERFTRACE_KIND_s64	4
#define PERFTRACE_KIND_x64	4
#define PERFTRACE_KIND_f64	4
#define PERFTRACE_KIND_str	5

/*
 * The size of a field in bytes. A field of the type str counts as
 * PERFTRACE_LONG_ bytes, which is more than 16 fields of other types can have
 * together. If the sizes of an event's fields add up to PERFTRACE_LONG_ or
 * more, at least one of the fields is a str.
 */
#define PERFTRACE_LONG_	1024
#define PERFTRACE_BYTES_(kind) \
	((kind) == PERFTRACE_KIND_str ? PERFTRACE_LONG_ : 1 << (((kind) - 1) & 3))
#define PERFTRACE_KIND_(type, name, value)	PERFTRACE_KIND_##type
#define PERFTRACE_TEXT_(type, name, value)	" " #name ":" #type
#define PERFTRACE_VALUE_(type, name, value)	perftrace_##type##_(value)
/*
 * Declares a member of a struct that exists only to check the names of an event's fields. The name
 * of the member contains the name of a field. The struct does not compile if two fields have the
 * same name, or if a name has more than 31 characters.
 */
#define PERFTRACE_NAME_(type, name, value)	char perftrace_##name[sizeof(#name) <= 32 ? 1 : -1]

/* Stores a field in the words of a record. Returns the offset of the next field. */
PERFTRACE_INLINE_ unsigned int perftrace_put_(uint64_t *words, unsigned int at,
					      unsigned int bytes, uint64_t bits)
{
	unsigned int shift = at % 8 * 8;

	words[at / 8 % 16] |= bits << shift;
	if (at % 8 + bytes > 8)
		words[(at / 8 + 1) % 16] |= bits >> ((64 - shift) % 64);
	return at + bytes;
}

/*
 * Writes an event without texts. `bytes` is a constant at compile time, so the compiler keeps only
 * one branch.
 */
PERFTRACE_INLINE_ void perftrace_event_(const struct perftrace_site *site, const uint64_t *words,
					unsigned int bytes)
{
	if (!bytes)
		perftrace_write_0(site);
	else if (bytes <= 8)
		perftrace_write_1(site, words[0]);
	else if (bytes <= 16)
		perftrace_write_2(site, words[0], words[1]);
	else
		perftrace_write(site, words, (bytes + 7) / 8);
}

PERFTRACE_INLINE_ int perftrace_wanted_(const struct perftrace_site *site)
{
	const uint32_t *word = __atomic_load_n(&site->word, __ATOMIC_RELAXED);

	/*
	 * Acquire: pairs with the store by which the kernel sets the marker's word (`*site->word`)
	 * after the kernel has set up the trace.
	 */
	return __builtin_expect(__atomic_load_n(word, __ATOMIC_ACQUIRE) != 0, 0);
}

/*
 * Expands to make(number, field) for each field. The name of the event is the argument before the
 * fields.
 */
#define PERFTRACE_EACH_0(make, n, event)
#define PERFTRACE_EACH_1(make, n, event, f) make(n, f)
#define PERFTRACE_EACH_2(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_1(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_3(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_2(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_4(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_3(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_5(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_4(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_6(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_5(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_7(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_6(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_8(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_7(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_9(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_8(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_10(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_9(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_11(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_10(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_12(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_11(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_13(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_12(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_14(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_13(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_15(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_14(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_EACH_16(make, n, event, f, ...) \
	make(n, f) PERFTRACE_EACH_15(make, n + 1, event, __VA_ARGS__)
#define PERFTRACE_SHAPES_(n, f)	| (uint64_t)PERFTRACE_KIND_ f << 4 * (n)
#define PERFTRACE_SUM_(n, f)	+ PERFTRACE_BYTES_(PERFTRACE_KIND_ f)
#define PERFTRACE_TEXTS_(n, f)	PERFTRACE_TEXT_ f
#define PERFTRACE_NAMES_(n, f)	PERFTRACE_NAME_ f;
#define PERFTRACE_VALUES_(n, f)	PERFTRACE_VALUE_ f,
#define PERFTRACE_PUTS_(n, f) \
	perftrace_at_ = perftrace_put_(perftrace_words_, perftrace_at_, \
				       PERFTRACE_BYTES_(PERFTRACE_KIND_ f), \
				       perftrace_values_[n].bits);

/*
 * PERFTRACE_COUNT_ expands to the number of fields of an event.
 * PERFTRACE_FIRST_ expands to the name of the event, which is the argument
 * before the fields.
 */
#define PERFTRACE_COUNT_(...) \
	PERFTRACE_PICK_(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0)
#define PERFTRACE_PICK_(event, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15, \
			f16, n, ...) n
#define PERFTRACE_FIRST_(event, ...) #event

#ifdef __cplusplus
/*
 * In C++ the site of a marker is a static member of a template in an unnamed namespace, because a
 * static variable of an inline function or of a template cannot be in a section that other
 * variables use. Each use of the macro defines a local type and passes it as the argument of the
 * template, so each use has its own instance of the template and its own site.
 */
namespace {
template <class Here> struct perftrace_where_ {
	static struct perftrace_site site;
};

template <class Here>
struct perftrace_site perftrace_where_<Here>::site
	__attribute__((section("perftrace_sites"), used, aligned(8))) = {
		&perftrace_off_, Here::header(), 0, Here::text(), Here::shape()
};
}

#define PERFTRACE_ASSERT_ static_assert
#define PERFTRACE_LAY_(text_, shape_, header_) \
	struct perftrace_here_ { \
		static constexpr const char *text() { return text_; } \
		static constexpr uint64_t shape() { return shape_; } \
		static constexpr uint32_t header() { return header_; } \
	}; \
	struct perftrace_site &perftrace_site_ = perftrace_where_<perftrace_here_>::site
#else
#define PERFTRACE_ASSERT_ _Static_assert
#define PERFTRACE_LAY_(text_, shape_, header_) \
	static struct perftrace_site perftrace_site_ \
		__attribute__((section("perftrace_sites"), used, aligned(8))) = { \
		&perftrace_off_, header_, 0, text_, shape_ \
	}
#endif

#define PERFTRACE_EVENT_(n, provider, ...) PERFTRACE_EVENT_N_(n, provider, __VA_ARGS__)
#define PERFTRACE_EVENT_N_(n, provider, ...) \
	PERFTRACE_SITE_(provider ":" PERFTRACE_FIRST_(__VA_ARGS__, 0), \
			"" PERFTRACE_EACH_##n(PERFTRACE_TEXTS_, 0, __VA_ARGS__), \
			(0 PERFTRACE_EACH_##n(PERFTRACE_SUM_, 0, __VA_ARGS__)), \
			(0 PERFTRACE_EACH_##n(PERFTRACE_SHAPES_, 0, __VA_ARGS__)), \
			n, PERFTRACE_EACH_##n(PERFTRACE_NAMES_, 0, __VA_ARGS__), \
			PERFTRACE_EACH_##n(PERFTRACE_PUTS_, 0, __VA_ARGS__), \
			PERFTRACE_EACH_##n(PERFTRACE_VALUES_, 0, __VA_ARGS__))
#define PERFTRACE_SITE_(marker, fields, sum, shape, n, names, puts, ...) \
	do { \
		PERFTRACE_LAY_(marker "\0" fields, shape, (sum) >= PERFTRACE_LONG_ ? 0 : \
			       (uint32_t)((sum) + 23) / 8 << 16); \
		struct perftrace_names_ { names char perftrace_; }; \
\
		PERFTRACE_ASSERT_(sizeof(marker) <= 64, "the marker's name is too long"); \
		PERFTRACE_ASSERT_(sizeof(fields) <= 257, "the fields' names are too long"); \
		PERFTRACE_ASSERT_(sizeof(struct perftrace_names_) > (n), "names are given once"); \
		PERFTRACE_ASSERT_(__builtin_strncmp(marker, "kernel:", 7), \
				  "the provider kernel is the kernel's own"); \
		if (perftrace_wanted_(&perftrace_site_)) { \
			const struct perftrace_value perftrace_values_[] = { \
				__VA_ARGS__ { 0, 0 } \
			}; \
\
			if ((sum) >= PERFTRACE_LONG_) { \
				perftrace_write_values(&perftrace_site_, perftrace_values_, n); \
			} else { \
				uint64_t perftrace_words_[16] = { 0 }; \
				unsigned int perftrace_at_ = 0; \
\
				puts \
				perftrace_event_(&perftrace_site_, perftrace_words_, \
						 perftrace_at_); \
			} \
		} \
	} while (0)

/**
 * PERFTRACE() - record an event of this program
 * @provider: letters, digits, and _.-
 * @...: the event's name, of the same characters; then up to 16 fields, each "(type, name, value)"
 *
 * Names of events and fields must not be names of macros: the name would be replaced by the
 * expansion of the macro, or would not compile.
 */
#define PERFTRACE(provider, ...) \
	PERFTRACE_EVENT_(PERFTRACE_COUNT_(__VA_ARGS__), #provider, __VA_ARGS__)

#endif /* _PERFTRACE_MACRO_H */
